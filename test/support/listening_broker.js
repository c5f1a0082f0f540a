// Writes every packet that the engine's parties send each other to the file HEARD_PACKETS.
//
//     NODE_OPTIONS="--require .../listening_broker.js" node engine.js ..

const fs = require('fs');

const place = require.resolve('aedes');
const make = require('aedes');

require.cache[place].exports = (...given) => {
  const broker = make(...given);
  broker.on('publish', (packet) => {
    const told = { topic: packet.topic, payload: String(packet.payload) };
    fs.appendFileSync(process.env.HEARD_PACKETS, `${JSON.stringify(told)}\n`);
  });
  return broker;
};
