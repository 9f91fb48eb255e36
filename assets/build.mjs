// Puts what the pages load in the browser into the package: `make assets` runs it after `npm ci`.
// Tabler's stylesheet is written without the rules that no template uses, and of its icons only the used ones are taken.
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { PurgeCSS } from "purgecss";

const PAGES = "src/windlass/dashboard";
const BUILD = join(PAGES, "static/build");
const DOCS = "src/windlass/api/static";
const read = (path) => readFileSync(path, "utf8");
const npm = (path) => join("node_modules", path);

function files(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((one) => one.isFile())
    .map((one) => join(one.parentPath ?? one.path, one.name));
}

rmSync(BUILD, { recursive: true, force: true });
mkdirSync(BUILD, { recursive: true });
mkdirSync(DOCS, { recursive: true });

for (const name of ["swagger-ui-bundle.js", "swagger-ui.css", "LICENSE"]) {
  writeFileSync(join(DOCS, name), readFileSync(npm(`swagger-ui-dist/${name}`)));
}

const sources = files(PAGES).filter((path) => /\.(html|py|js)$/.test(path) && !path.includes("static/build"));
const [tabler] = await new PurgeCSS().purge({
  css: [npm("@tabler/core/dist/css/tabler.min.css")],
  content: sources,
  defaultExtractor: (text) => text.match(/[\w-]+/g) ?? [],
  variables: true,
  keyframes: true,
  fontFace: true,
});
writeFileSync(join(BUILD, "tabler.css"), `/*! Tabler, MIT */\n${tabler.css}`);

const icons = new Set(sources.flatMap((path) => [...read(path).matchAll(/icon\("([a-z0-9-]+)"\)/g)].map((found) => found[1])));
const symbols = [...icons].sort().map((name) => {
  const svg = read(npm(`@tabler/icons/icons/outline/${name}.svg`));
  return `<symbol id="${name}" viewBox="0 0 24 24">${svg.replace(/^[\s\S]*?<svg[\s\S]*?>/, "").replace("</svg>", "").replace(/\s*\n\s*/g, "")}</symbol>`;
});
writeFileSync(join(BUILD, "icons.svg"), `<svg xmlns="http://www.w3.org/2000/svg">${symbols.join("")}</svg>`);

const scripts = ["htmx.org/dist/htmx.min.js", "htmx-ext-sse/dist/sse.min.js", "idiomorph/dist/idiomorph-ext.min.js"];
writeFileSync(join(BUILD, "htmx.js"), scripts.map((path) => read(npm(path))).join(";\n"));
writeFileSync(join(BUILD, "inter.woff2"), readFileSync(npm("@fontsource-variable/inter/files/inter-latin-wght-normal.woff2")));

const packages = ["@fontsource-variable/inter", "@tabler/core", "@tabler/icons", "htmx.org", "htmx-ext-sse", "idiomorph"];
const licenses = packages.map((name) => {
  const folder = npm(name);
  const license = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
  return `${name}, ${JSON.parse(read(join(folder, "package.json"))).license}\n\n${license ? read(join(folder, license)) : ""}`;
});
writeFileSync(join(BUILD, "LICENSES"), licenses.join("\n\n----\n\n"));
