"use strict";
const text = document.getElementById("results").textContent;
document.getElementById("look").addEventListener("toggle", () => {
  document.getElementById("shown").textContent = JSON.stringify(JSON.parse(text), null, 1);
}, { once: true });
document.getElementById("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(JSON.parse(text), null, 2)], { type: "application/json" }));
  link.download = "sluice-bench.json";
  link.click();
  URL.revokeObjectURL(link.href);
});
