// Before the first paint: that scripts run here, and the theme the person chose, if any.
document.documentElement.classList.add("js");
try {
  const chosen = localStorage.getItem("holdfast-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* storage may be forbidden; then the system decides */ }
