// The other implementation, npm's @divviup/prio3, as a device and as both servers: JSON in, JSON out, bytes in hex.
import { Prio3SumVec } from "@divviup/prio3";
import { Buffer } from "buffer";

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const { length, bits, chunk, verifyKey, measurements, reports } = JSON.parse(Buffer.concat(chunks));
const vdaf = new Prio3SumVec({ shares: 2, length, bits, chunkLength: chunk });
const { field, measurementLen, proofLen } = vdaf.flp;
const bytes = (hex) => Buffer.from(hex, "hex");
const hex = (data) => Buffer.from(data).toString("hex");

// It encodes input shares but does not decode them: the leader's are elements, the helper's are two seeds; then the blind.
async function opened(server, share) {
  const blind = share.subarray(share.length - 16);
  if (server === 0) {
    const elements = field.decode(share.subarray(0, share.length - 16));
    return { measurementShare: elements.slice(0, measurementLen), proofsShare: elements.slice(measurementLen), blind };
  }
  const measurementShare = await vdaf.pseudorandom(measurementLen, 1, share.subarray(0, 16), Buffer.of(1));
  const proofsShare = await vdaf.pseudorandom(proofLen, 2, share.subarray(16, 32), Buffer.of(1, 1));
  return { measurementShare, proofsShare, blind };
}

const sharded = [];
for (const { measurement, nonce, rand } of measurements) {
  const { publicShare, inputShares } = await vdaf.shardEncoded(measurement, bytes(nonce), bytes(rand));
  sharded.push({ publicShare: hex(publicShare), inputShares: inputShares.map(hex) });
}

const checked = [];
const accepted = [[], []];
for (const { nonce, publicShare, inputShares } of reports) {
  const prepared = [];
  for (const server of [0, 1]) {
    const jointRandParts = [0, 16].map((start) => bytes(publicShare).subarray(start, start + 16));
    const share = await opened(server, bytes(inputShares[server]));
    prepared.push(await vdaf.prepareInit(bytes(verifyKey), server, null, bytes(nonce), { jointRandParts }, share));
  }
  const parts = prepared.map(({ preparationShare }) => preparationShare);
  const seen = { parts: parts.map((part) => hex(vdaf.encodePreparationShare(part))) };
  try {
    const message = await vdaf.unshardPreparationShares(null, parts);
    prepared.forEach(({ preparationState }, server) =>
      accepted[server].push(vdaf.prepareNext(preparationState, message).outputShare),
    );
    seen.message = hex(vdaf.encodePreparationMessage(message));
  } catch (error) {
    seen.refused = error.message;
  }
  checked.push(seen);
}
const sums = accepted.map((outputs) => vdaf.aggregate(null, outputs));
console.log(JSON.stringify({ sharded, checked, sum: vdaf.unshard(null, sums, accepted[0].length) }));
