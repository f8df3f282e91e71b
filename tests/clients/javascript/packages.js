// Where the packages of package-lock.json are, outside the repository, and how they come there.
//
//   node packages.js NAME         prints the folder to put into NODE_PATH; fails if the package does not load
//   node packages.js --install    installs what is missing
//
// The folder's name changes with the lock and with Node's ABI, so that packages of another lock or Node are never
// taken for these. @confluentinc/kafka-javascript is native code: its install fetches a binary or, where there is
// none, builds one, with the system's own libraries (CKJS_LINKING), which needs a C++ compiler and minutes.

"use strict";

const { execFileSync } = require("node:child_process");
const { createHash } = require("node:crypto");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

const LISTS = ["package.json", "package-lock.json"];

function folder() {
  const hash = createHash("sha256").update(process.versions.modules);
  LISTS.forEach((name) => hash.update(fs.readFileSync(path.join(__dirname, name))));
  const cache = process.env.XDG_CACHE_HOME || path.join(os.homedir(), ".cache");
  return path.join(cache, "flintmq-tests", `npm-${hash.digest("hex").slice(0, 16)}`);
}

function fault(modules, name) {
  try {
    require(path.join(modules, name));
    return null;
  } catch (error) {
    return error.message.split("\n")[0];
  }
}

function install(home) {
  const lists = JSON.parse(fs.readFileSync(path.join(__dirname, "package.json")));
  const wanted = Object.keys({ ...lists.dependencies, ...lists.optionalDependencies });
  const missing = () => wanted.filter((name) => fault(path.join(home, "node_modules"), name));
  if (missing().length > 0) {
    fs.mkdirSync(home, { recursive: true });
    LISTS.forEach((name) => fs.copyFileSync(path.join(__dirname, name), path.join(home, name)));
    const options = ["--no-audit", "--no-fund"];
    const env = { CKJS_LINKING: "dynamic", ...process.env };
    execFileSync("npm", ["ci", ...options], { cwd: home, env, stdio: ["ignore", 2, 2] });
  }
  missing().forEach((name) => console.error(`${name} could not be installed`));
  return missing().length === 0;
}

const home = folder();
const modules = path.join(home, "node_modules");
if (process.argv[2] === "--install") {
  process.exitCode = install(home) ? 0 : 1;
} else {
  const reason = fault(modules, process.argv[2]);
  if (reason) {
    console.error(reason);
    process.exitCode = 1;
  }
  console.log(modules);
}
