"""stub"""
from typing import Any
def looks(f: Any) -> Any: raise NotImplementedError
def answers(a: Any, b: Any) -> Any: raise NotImplementedError
