// A client of the host in Node, from the .proto alone: nothing of this project is imported.
//
//   node client.mjs PROTO_DIR GOOGLE_PROTO_DIR < {"socket", "token", "publicKeyPem", "command"}
//
// Prints one JSON object with what it found.
import { readFileSync } from "node:fs";
import { createHash, createPublicKey, randomBytes, verify } from "node:crypto";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const [protoDir, googleDir] = process.argv.slice(2);
const settings = JSON.parse(readFileSync(0, "utf8"));
const options = { keepCase: true, longs: String, enums: String, oneofs: true, includeDirs: [protoDir, googleDir] };
const { workseal } = grpc.loadPackageDefinition(protoLoader.loadSync("workseal/v1/host.proto", options));
const rpc = protoLoader.loadSync(["google/rpc/status.proto", "google/rpc/error_details.proto"], options);

const host = new workseal.v1.HostService(`unix:${settings.socket}`, grpc.credentials.createInsecure());
const metadata = new grpc.Metadata();
metadata.set("authorization", `Bearer ${settings.token}`);

const unary = (method, request, given = metadata) =>
  new Promise((resolve, reject) =>
    host[method](request, given, (error, answer) => (error ? reject(error) : resolve(answer))),
  );

const stream = (method, request) =>
  new Promise((resolve, reject) => {
    const events = [];
    host[method](request, metadata)
      .on("data", (event) => events.push(event))
      .on("error", reject)
      .on("end", () => resolve(events));
  });

// An error's details are a google.rpc.Status in the trailers; each detail is an Any.
function details(error) {
  const found = { code: grpc.status[error.code] };
  for (const bytes of error.metadata.get("grpc-status-details-bin")) {
    for (const detail of rpc["google.rpc.Status"].deserialize(bytes).details) {
      const name = detail.type_url.slice(detail.type_url.lastIndexOf("/") + 1);
      found[name] = rpc[name].deserialize(detail.value);
    }
  }
  return found;
}

const failure = (promise) => promise.then(() => null, details);

// DSSE: the signature is over the pre-authentication encoding of type and payload.
function verifiedPayload(envelopeBytes, publicKeyPem) {
  const envelope = JSON.parse(envelopeBytes.toString("utf8"));
  const payload = Buffer.from(envelope.payload, "base64");
  const type = Buffer.from(envelope.payloadType, "utf8");
  const encoded = Buffer.concat([
    Buffer.from(`DSSEv1 ${type.length} `),
    type,
    Buffer.from(` ${payload.length} `),
    payload,
  ]);
  const key = createPublicKey(publicKeyPem);
  const good = (bytes) => verify(null, bytes, key, Buffer.from(envelope.signatures[0].sig, "base64"));
  const tampered = Buffer.from(encoded);
  tampered[tampered.length - 2] ^= 1;
  return { payload, signatureIsGood: good(encoded), tamperedIsGood: good(tampered) };
}

const challenge = randomBytes(32).toString("base64url");
const request = {
  call: { session_id: "node", tool_call_id: "call-1", challenge },
  tool: "bash",
  arguments_json: Buffer.from(JSON.stringify({ command: settings.command })),
};

const info = await unary("GetHostInfo", {});
const events = await stream("ExecuteTool", request);
const outcome = events.at(-1).outcome;
const { payload, signatureIsGood, tamperedIsGood } = verifiedPayload(outcome.receipt.envelope, settings.publicKeyPem);
const accepted = events[0].accepted;
const waited = await stream("WaitExecution", { execution: { execution_id: accepted.execution_id } });
const changes = await stream("GetChanges", { receipt: { sequence: outcome.receipt.sequence } });
const hash = createHash("sha256");
changes.forEach((part) => hash.update(part.lines));

console.log(
  JSON.stringify({
    workspaceId: info.workspace_id,
    tools: info.tools.map((tool) => tool.name),
    kinds: events.map((event) => event.event),
    output: Buffer.concat(events.filter((e) => e.output).map((e) => e.output.data)).toString(),
    statement: JSON.parse(payload.toString("utf8")),
    signatureIsGood,
    tamperedIsGood,
    payloadDigestIsGood: createHash("sha256").update(payload).digest("hex") === outcome.receipt.payload_sha256,
    challenge,
    waitedIsSame: waited.at(-1).outcome.receipt.envelope.equals(outcome.receipt.envelope),
    changesDigest: hash.digest("hex"),
    badRequest: await failure(unary("GetDigest", { scan: "SCAN_LEVEL_WATCH" })),
    notFound: await failure(unary("GetReceipt", { receipt: { sequence: "999" } })),
    noToken: await failure(unary("GetHostInfo", {}, new grpc.Metadata())),
  }),
);
host.close();
