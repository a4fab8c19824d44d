"use strict";
// The maps of the test samples: one canvas for each loss, one card for the sample pointed at.
const PAD = 24; // pixels between the outermost points and the edge
const NAME_FONT = "600 13px system-ui, sans-serif";
const ABOVE = 13; // pixels from a class's points to its name
const REACH = 40; // pixels from the pointer within which a point is selected
const LARGE = 144, SMALL = 44; // sides of the images on the card
const NAME_HEIGHT = 16, GAP = 2, RING = 4, DIRECTIONS = 16, FAR = 24; // of names; as in label_placement.py

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// The box of a name shifted inside a square; centred where it is too large.
function inside({ x, y, width, height }, side) {
  const within = (at, size) => (size > side ? side / 2 : Math.min(Math.max(at, size / 2), side - size / 2));
  return { x: within(x, width), y: within(y, height), width, height };
}

// Boxes that do not overlap, each as near to its wanted position as is free: tried on rings from the inside out.
function place(wanted, side) {
  const placed = [];
  const overlaps = (one, other) =>
    Math.abs(one.x - other.x) < (one.width + other.width) / 2 + GAP
    && Math.abs(one.y - other.y) < (one.height + other.height) / 2 + GAP;
  const isFree = (box) => !placed.some((other) => overlaps(box, other));
  for (const box of wanted) {
    const start = inside(box, side);
    let found = isFree(start) ? start : null;
    for (let radius = RING; !found && radius <= side + RING; radius += RING) {
      for (let step = 0; !found && step < DIRECTIONS; step += 1) {
        const angle = (2 * Math.PI * Math.ceil(step / 2) * (step % 2 ? 1 : -1)) / DIRECTIONS;
        const moved = { ...start, x: start.x + radius * Math.sin(angle), y: start.y - radius * Math.cos(angle) };
        const option = inside(moved, side);
        if (isFree(option)) found = option;
      }
    }
    placed.push(found || start);
  }
  return placed;
}

function startMap({ steps, maps, sheets, galleries }) {
  const canvases = maps.map((_, i) => document.querySelector(`#map-${i} canvas`));
  const card = document.getElementById("card");
  const loaded = ({ thumbnails }) => thumbnails && Object.assign(new Image(), { src: thumbnails.source });
  const images = new Map([...sheets, ...galleries].map((source) => [source, loaded(source)]));
  let pointed = null; // { map, point }

  function resize(i) {
    const canvas = canvases[i], side = canvas.clientWidth, ratio = devicePixelRatio || 1;
    canvas.width = canvas.height = Math.round(side * ratio);
    const coordinate = (value) => PAD + (value / steps) * (side - 2 * PAD);
    const flat = maps[i].points;
    canvas.positions = maps[i].predictions.map((_, p) => [coordinate(flat[2 * p]), side - coordinate(flat[2 * p + 1])]);
    canvas.names = side ? placedNames(canvas.getContext("2d"), maps[i], side) : [];
    draw(i);
  }

  // The names of the classes, where they are drawn, and the points of the map that they belong to.
  function placedNames(pen, map, side) {
    if (report.class_names.length > report.most_labelled) return [];
    pen.font = NAME_FONT;
    const ratio = pen.canvas.width / side;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const names = Object.entries(map.label_positions).map(([label, [x, y]]) => {
      const text = shortened(report.class_names[label]);
      const at = { x: PAD + x * (side - 2 * PAD), y: side - PAD - y * (side - 2 * PAD) };
      const box = { x: at.x, y: at.y - ABOVE, width: pen.measureText(text).width + 4, height: NAME_HEIGHT };
      return { text, at, box };
    });
    const boxes = place(names.map(({ box }) => box), side);
    return names.map(({ text, at }, i) => ({ text, at, ...boxes[i] }));
  }

  function drawName(pen, { text, at, x, y, height }, ink, ground) {
    if (Math.hypot(at.x - x, at.y - ABOVE - y) > FAR) { // a line to its points
      const end = y < at.y ? y + height / 2 : y - height / 2;
      for (const [colour, width] of [[ground, 3], [ink, 1]]) {
        pen.strokeStyle = colour; pen.lineWidth = width;
        pen.beginPath(); pen.moveTo(x, end); pen.lineTo(at.x, at.y); pen.stroke();
      }
    }
    pen.lineWidth = 4;
    pen.strokeStyle = ground; pen.strokeText(text, x, y);
    pen.fillStyle = ink; pen.fillText(text, x, y);
  }

  function draw(i) {
    const canvas = canvases[i], side = canvas.clientWidth, map = maps[i], { labels } = sheets[map.sheet];
    if (!side) return;
    const pen = canvas.getContext("2d");
    pen.setTransform(canvas.width / side, 0, 0, canvas.height / side, 0, 0);
    pen.clearRect(0, 0, side, side);
    const { color: ink, backgroundColor: ground } = getComputedStyle(canvas);
    const [radius, arm] = labels.length > 800 ? [2.4, 3.4] : [3.4, 5];
    canvas.positions.forEach(([x, y], p) => {
      pen.strokeStyle = pen.fillStyle = themed(report.class_colours[labels[p]]);
      pen.beginPath();
      if (map.predictions[p] === labels[p]) {
        pen.globalAlpha = 0.8;
        pen.arc(x, y, radius, 0, 2 * Math.PI);
        pen.fill();
      } else {
        pen.globalAlpha = 1;
        pen.lineWidth = arm / 2;
        pen.moveTo(x - arm, y - arm); pen.lineTo(x + arm, y + arm);
        pen.moveTo(x - arm, y + arm); pen.lineTo(x + arm, y - arm);
        pen.stroke();
      }
    });
    pen.globalAlpha = 1;
    Object.assign(pen, { font: NAME_FONT, textAlign: "center", textBaseline: "middle", lineJoin: "round" });
    for (const name of canvas.names) drawName(pen, name, ink, ground);
    if (pointed && maps[pointed.map].sheet === map.sheet) {
      const [x, y] = canvas.positions[pointed.point];
      pen.strokeStyle = ink;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(x, y, 8, 0, 2 * Math.PI);
      pen.stroke();
    }
  }

  const similarityText = (value) => value.toFixed(value > 0.99 ? 5 : 3); // near 1 the first digits are all the same
  const shortened = (name) => (name.length > 18 ? `${name.slice(0, 17)}…` : name);

  // The picture of a sample of a sheet or a gallery; an empty frame where there was no room for it.
  function picture(source, i, side) {
    const { labels, thumbnails: { n, columns, width, height } } = source;
    if (i >= n) return element("div", "picture none");
    const canvas = element("canvas", "picture");
    const ratio = devicePixelRatio || 1, scale = side / Math.max(width, height);
    canvas.style.width = `${width * scale}px`;
    canvas.style.height = `${height * scale}px`;
    canvas.width = Math.round(width * scale * ratio);
    canvas.height = Math.round(height * scale * ratio);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", report.class_names[labels[i]]);
    const pen = canvas.getContext("2d");
    pen.imageSmoothingEnabled = width >= 24;
    const from = [(i % columns) * width, Math.floor(i / columns) * height, width, height];
    pen.drawImage(images.get(source), ...from, 0, 0, canvas.width, canvas.height);
    return canvas;
  }

  function neighboursUnder(map, point) {
    const { labels } = sheets[map.sheet], gallery = galleries[map.gallery], { texts, thumbnails } = gallery;
    const right = map.predictions[point] === labels[point];
    const row = element("div", "neighbours");
    const verdict = element("p", right ? "right" : "wrong");
    verdict.append(element("b", "", map.loss), ` ${right ? "✓" : "✗"} predicted ${report.class_names[map.predictions[point]]}`);
    const list = element("ul", texts ? "words" : "");
    map.neighbours[point].forEach((neighbour, rank) => {
      const item = element("li", gallery.labels[neighbour] === labels[point] ? "" : "other");
      if (thumbnails) item.append(picture(gallery, neighbour, SMALL));
      const about = element("div", "");
      about.append(element("span", "class", report.class_names[gallery.labels[neighbour]]));
      about.append(element("span", "similarity", similarityText(map.similarities[point][rank])));
      if (texts) about.append(element("span", "text", texts[neighbour] || `#${gallery.ids[neighbour]}`));
      item.title = `training ${report.sample} ${gallery.ids[neighbour]}`;
      item.append(about);
      list.append(item);
    });
    row.append(verdict, list);
    return row;
  }

  function show(map, point) {
    if (pointed && pointed.map === map && pointed.point === point) return;
    pointed = { map, point };
    const { sheet } = maps[map], { ids, labels, texts, thumbnails } = sheets[sheet];
    const about = element("div", thumbnails ? "about" : "about words");
    if (thumbnails) about.append(picture(sheets[sheet], point, LARGE));
    about.append(element("p", "label", report.class_names[labels[point]]));
    if (texts) about.append(element("p", "text", texts[point]));
    about.append(element("p", "note", `test ${report.sample} ${ids[point]}`));
    const rows = element("div", "rows");
    rows.append(...maps.filter((other) => other.sheet === sheet).map((other) => neighboursUnder(other, point)));
    card.replaceChildren(about, rows);
    maps.forEach((_, i) => draw(i));
  }

  function nearest(i, event) {
    const box = canvases[i].getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = -1, least = REACH ** 2;
    canvases[i].positions.forEach(([px, py], p) => {
      const distance = (px - x) ** 2 + (py - y) ** 2;
      if (distance < least) [best, least] = [p, distance];
    });
    return best;
  }

  canvases.forEach((canvas, i) => {
    const point = (event) => {
      const found = nearest(i, event);
      if (found >= 0) show(i, found);
    };
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("pointerdown", point);
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const n = maps[i].predictions.length;
      show(i, pointed && pointed.map === i ? (pointed.point + step + n) % n : 0);
    });
    resize(i);
    new ResizeObserver(() => resize(i)).observe(canvas);
  });
  document.addEventListener("theme", () => maps.forEach((_, i) => draw(i)));

  const panels = canvases.map((canvas) => canvas.parentElement);
  if (maps.length > 1) {
    choice(document.getElementById("map-choice"), maps.map((map) => map.loss), (chosen) => {
      panels.forEach((panel, i) => panel.classList.toggle("chosen", i === chosen));
    });
  } else panels[0].classList.add("chosen");

  // Show a first sample on the card: a misclassified one, if there is one.
  Promise.all([...images.values()].map((image) => image?.decode())).then(() => {
    const wrong = maps[0].predictions.findIndex((prediction, p) => prediction !== sheets[maps[0].sheet].labels[p]);
    show(0, Math.max(wrong, 0));
  });
}

if (report.map) startMap(report.map);
