// A link may carry the key behind `#`, which browsers send to no server: `vcl demo` prints such a one.
"use strict";
const given = decodeURIComponent(location.hash.slice(1));
if (given) {
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("key").value = given;
  document.getElementById("login").requestSubmit();
}
