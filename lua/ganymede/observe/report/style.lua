--- The style sheet of a report: it follows the reader's light or dark mode, and prints black on white.
-- @module ganymede.observe.report.style

return [[
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--dim:#5c6670;--rule:#d9dee3;--s1:#1f5fbf;--s2:#c8500a;
--s3:#14804a;--s4:#9a2fa8;--s5:#a8860b;--s6:#0b8a9a;--s7:#c02050;--s8:#6a6a6a}
@media (prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e6e9ec;--dim:#9aa4ae;--rule:#343c45;--s1:#6aa5ff;
--s2:#ff9a55;--s3:#4fd08a;--s4:#e08af0;--s5:#e6c34a;--s6:#52d3e3;--s7:#ff7a9c;--s8:#b0b0b0}}
@media print{:root{color-scheme:light;--paper:#fff;--ink:#000;--dim:#444;--rule:#bbb;--s1:#1f5fbf;--s2:#c8500a;
--s3:#14804a;--s4:#9a2fa8;--s5:#a8860b;--s6:#0b8a9a;--s7:#c02050;--s8:#6a6a6a}section{break-inside:avoid}}
body{background:var(--paper);color:var(--ink);font:15px/1.45 "DejaVu Sans",Helvetica,Arial,sans-serif;margin:0 auto;
max-width:1180px;padding:24px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:30px 0 8px;border-bottom:1px solid var(--rule)}
h3{font-size:14px;margin:10px 0 2px}p{margin:6px 0}.dim{color:var(--dim)}
table{border-collapse:collapse;margin:6px 0;font-size:13px}th,td{padding:3px 12px 3px 0;text-align:left;
vertical-align:top;border-bottom:1px solid var(--rule);overflow-wrap:anywhere}td.n,th.n{text-align:right;
font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}.grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:8px 24px}
svg{width:100%;height:auto;max-width:640px}.grid{stroke:var(--rule);stroke-width:1}.mark{fill:var(--dim);font-size:11px}
.curve{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}
.s1{stroke:var(--s1)}.s2{stroke:var(--s2);stroke-dasharray:7 3}.s3{stroke:var(--s3);stroke-dasharray:2 3}
.s4{stroke:var(--s4);stroke-dasharray:9 3 2 3}.s5{stroke:var(--s5);stroke-dasharray:12 4}
.s6{stroke:var(--s6);stroke-dasharray:4 2}.s7{stroke:var(--s7);stroke-dasharray:1 4}
.s8{stroke:var(--s8);stroke-dasharray:10 2 2 2 2 2}
.p1{fill:var(--s1)}.p2{fill:var(--s2)}.p3{fill:var(--s3)}.p4{fill:var(--s4)}.p5{fill:var(--s5)}
.key{display:inline-block;width:34px;height:10px;vertical-align:middle;margin-right:6px}.key svg{width:34px;height:10px}
.swatch{display:inline-block;width:11px;height:11px;margin:0 5px 0 12px}.swatch svg{width:11px;height:11px}
details summary{cursor:pointer;color:var(--dim)}
]]
