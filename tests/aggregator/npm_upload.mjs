// The stock client of npm's @divviup/dap uploads over the network: JSON in; it fails if an upload does.
import { Task } from "@divviup/dap";

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const { task, measurements } = JSON.parse(Buffer.concat(chunks));
const client = new Task(task);
for (const measurement of measurements) await client.sendMeasurement(measurement);
