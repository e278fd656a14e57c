// The other implementation, npm's @divviup/dap, as a device: JSON in, JSON out, bytes in hex. The network is ours.
import { Task } from "@divviup/dap";

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const { task, configs, measurements, time } = JSON.parse(Buffer.concat(chunks));
const requests = [];
const client = new Task(task);
client.fetch = async (url, { method = "GET", headers, body } = {}) => {
  requests.push({ url, method, headers, body: body && Buffer.from(body).toString("hex") });
  if (method !== "GET") return new Response(null, { status: 201 });
  const config = configs[new URL(url).origin];
  return new Response(Buffer.from(config, "hex"), { headers: { "Content-Type": headers.Accept } });
};
for (const measurement of measurements) {
  await client.sendMeasurement(measurement, { timestamp: new Date(1000 * time) });
}
console.log(JSON.stringify(requests));
