// What a keyboard and a screen reader need, and the theme leaves out.
addEventListener("DOMContentLoaded", () => {
  for (const wide of document.querySelectorAll(".highlight pre, .table-wrapper")) wide.tabIndex = 0;
  for (const title of document.querySelectorAll(".sidebar-tree .caption")) title.ariaLevel = "2";
  for (const [selector, name] of [[".sidebar-drawer", "Pages"], [".toc-drawer", "On this page"]])
    document.querySelector(selector)?.setAttribute("aria-label", name);
});
