// One consortium in COINSTAC's own engine, all parties on this computer.
//
//     node engine.js COMPSPECS INPUTS FOLDER
//
// COMPSPECS a JSON file: {"default": compspec, "<party>": another one, ..}
// INPUTS    a JSON file: {"<site>": {"<input>": {"value": ..}, ..}, ..}
// FOLDER    holds input/<site>/simulatorRun/<files>; gets output/<party>/simulatorRun/
//
// stderr: a JSON line {"update": ..} per change of the aggregator's state.  stdout: a JSON line
// {"party": .., "status": ..} per party at the end, between lines of the engine's own log.
// Exit 0: all parties finished.  1: the run failed.  2: it could not be started.

// COINSTAC's own server always sets it, and a computation of version 1 is started in another way then.
process.LOGLEVEL = process.LOGLEVEL || 'info';

const fs = require('fs');
const net = require('net');
const path = require('path');
const broker = require('aedes')();
const Pipeline = require('coinstac-pipeline');

const RUN = 'simulatorRun';

function listen(handler) {
  return new Promise((resolve, reject) => {
    const server = net.createServer(handler).on('error', reject);
    server.listen(0, '127.0.0.1', () => resolve(server));
  });
}

async function freePort() {
  const probe = await listen();
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

async function main([compspecsFile, inputsFile, folder]) {
  const compspecs = JSON.parse(fs.readFileSync(compspecsFile));
  const inputs = JSON.parse(fs.readFileSync(inputsFile));
  const sites = Object.keys(inputs);
  const mqtt = await listen(broker.handle);
  const common = {
    operatingDirectory: path.resolve(folder),
    mqttRemoteURL: '127.0.0.1',
    mqttRemotePort: mqtt.address().port,
    remoteURL: '127.0.0.1',
    remotePort: await freePort(),
  };
  const spec = (party, inputMap) => ({
    owner: sites[0],
    limitOutputToOwner: false,
    steps: [
      {
        controller: { type: 'decentralized' },
        computations: [compspecs[party] || compspecs.default],
        inputMap,
      },
    ],
  });

  // The aggregator first: it must know the sites before they speak.
  const aggregator = await Pipeline.create({ clientId: 'remote', mode: 'remote', ...common });
  const clients = Object.fromEntries(sites.map((site) => [site, site]));
  const runs = {
    remote: aggregator.startPipeline({
      spec: spec('remote', inputs[sites[0]]),
      runId: RUN,
      clients,
    }),
  };
  runs.remote.stateEmitter.on('update', (update) => {
    process.stderr.write(`${JSON.stringify({ update })}\n`);
  });
  for (const site of sites) {
    const party = await Pipeline.create({ clientId: site, mode: 'local', ...common });
    runs[site] = party.startPipeline({ spec: spec(site, inputs[site]), runId: RUN });
  }

  const parties = Object.keys(runs);
  const ends = await Promise.allSettled(parties.map((party) => runs[party].result));
  ends.forEach(({ status, value, reason }, i) => {
    const error = reason && String(reason.message || reason);
    process.stdout.write(`${JSON.stringify({ party: parties[i], status, value, error })}\n`);
  });
  return ends.every(({ status }) => status === 'fulfilled') ? 0 : 1;
}

main(process.argv.slice(2)).then(
  (code) => process.stdout.write('', () => process.exit(code)),
  (error) => {
    process.stderr.write(`${error && error.stack}\n`);
    process.exit(2);
  }
);
