// Numbers as people read them, and elements of the page.

export function count(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  for (const [limit, sign] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= limit) return `${Number((value / (sign === "k" ? 1e3 : limit)).toPrecision(digits))}${sign}`;
  }
  if (size !== 0 && size < 1e-3) return value.toExponential(2);
  return Number.isInteger(value) ? value.toLocaleString("en") : `${Number(value.toPrecision(digits + 1))}`;
}

// A step number: never shortened.
export function whole(value) {
  return value.toLocaleString("en");
}

export function bytes(value) {
  for (const [limit, sign] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (value >= limit) return `${(value / limit).toPrecision(3)} ${sign}`;
  }
  return `${value} B`;
}

export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "-";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 100) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  const minutes = Math.round(value / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function share(value) {
  return value === null || value === undefined ? "-" : `${(value * 100).toFixed(1)} %`;
}

export function moment(unix) {
  return new Date(unix * 1000).toLocaleString("en-GB", { dateStyle: "short", timeStyle: "medium" });
}

// Make an element; text is never taken for markup.
export function el(name, fields = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(fields)) {
    if (key === "style") Object.assign(made.style, value);
    else if (key in made && key !== "list" && key !== "form") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function table(columns, rows) {
  const head = columns.map(([title, kind]) => el("th", { className: kind ?? "", scope: "col" }, title));
  const body = rows.map((row) => el("tr", { className: row.className ?? "" },
    ...row.cells.map((cell, n) => el("td", { className: columns[n][1] ?? "" }, cell))));
  return el("div", { className: "scroll" },
    el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body)));
}

export function card(title, size, ...children) {
  return el("section", { className: `card ${size}` }, el("h2", {}, title), ...children);
}

export async function get(path, query = {}) {
  const answer = await fetch(`${path}?${new URLSearchParams(query)}`);
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}
