"""The style of our pages, in both themes: text has a contrast of at least 7:1, also on tokens.

Colours are variables, so that charts, tokens and tables follow the theme of the reader's system.
"""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--page:#fff;--text:#1c2024;--soft:#4a5157;--line:#d5dade;
--box:#f5f7f9;
--mark:#0b5cad;--second:#a3410b;--warn:#9d1c1c;--bar:#7fb0e3;--bar2:#f0a878;--grid:#e4e8eb;
--t0:#d6e8fb;--t1:#daf2d6;--t2:#fbefc2;--t3:#f7dcee;--esc:#8c1111;--special:#4b2a86}
@media(prefers-color-scheme:dark){:root{--page:#14171a;--text:#e8eaed;--soft:#b4bbc2;
--line:#3a4148;
--box:#1d2125;--mark:#8cc2ff;--second:#ffb183;--warn:#ff9b92;--bar:#3f78b5;--bar2:#b5652f;
--grid:#2a3036;
--t0:#173a5c;--t1:#1d4420;--t2:#43390c;--t3:#50243f;--esc:#ffdcd6;--special:#d9c4ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.5 system-ui,sans-serif}
main,header,footer,nav{max-width:62rem;margin:0 auto;padding:0 1rem}
header{padding-top:1.5rem}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:2.5rem 0 .5rem;padding-top:.5rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.5rem 0 .25rem}
p{margin:.4rem 0;max-width:48rem}
a{color:var(--mark)}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1rem;list-style:none;margin:1rem 0 0;padding:0}
nav a{display:inline-block;padding:.15rem 0}
.soft,figcaption,caption{color:var(--soft)}
.big{display:flex;flex-wrap:wrap;gap:.75rem 2.25rem;margin:1rem 0;padding:0}
.big div{min-width:6rem}
.big dt{color:var(--soft);font-size:.9rem}
.big dd{margin:0;font-size:1.5rem;font-variant-numeric:tabular-nums}
.big dd small{font-size:.9rem;color:var(--soft);display:block}
code,pre,kbd{font:14px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{overflow-wrap:anywhere}
pre{background:var(--box);border:1px solid var(--line);border-radius:4px;padding:.5rem .75rem;
margin:.4rem 0;
white-space:pre-wrap;overflow-wrap:anywhere}
.wrap{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;margin:.5rem 0;font-variant-numeric:tabular-nums}
caption{text-align:left;padding-bottom:.25rem}
th,td{padding:.25rem .75rem .25rem 0;text-align:left;vertical-align:top;
border-bottom:1px solid var(--line)}
th{font-weight:600}
td.n,th.n{text-align:right}
td.n,.keep{white-space:nowrap}
td.w{overflow-wrap:anywhere;min-width:9rem}
td svg{display:block;margin-top:.45rem}
td:not(.w) code{white-space:nowrap}
details{margin:.4rem 0}
summary{cursor:pointer;color:var(--mark);padding:.15rem 0}
figure{margin:.75rem 0}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
svg .name{fill:var(--text)}
svg .bar{fill:var(--bar)}svg .bar2{fill:var(--bar2)}
svg .grid{stroke:var(--grid);stroke-width:1}
svg .axis{stroke:var(--soft);stroke-width:1}
svg .rank{stroke:var(--text);stroke-width:1;stroke-dasharray:3 3}
svg .line{fill:none;stroke:var(--mark);stroke-width:1.5}
svg .line2{fill:none;stroke:var(--second);stroke-width:1.5;stroke-dasharray:6 2}
svg .out{fill:var(--page);stroke:var(--warn);stroke-width:2}
svg .far{fill:var(--warn);font-weight:600;paint-order:stroke;stroke:var(--page);stroke-width:4px}
.keys span{display:inline-block;margin-right:1rem}
.narrow{display:none}
.key{display:inline-block;width:1.5rem;height:.75rem;vertical-align:baseline;margin-right:.35rem}
.doc{background:var(--box);border:1px solid var(--line);border-radius:4px;padding:.5rem .75rem;
margin:.4rem 0;
white-space:pre-wrap;overflow-wrap:anywhere;font:14px/1.7 ui-monospace,SFMono-Regular,Menlo,
Consolas,monospace;
max-height:24rem;overflow-y:auto}
.doc b,.doc u,.tok b,.tok u{font-weight:400;text-decoration:none;unicode-bidi:isolate;
border-radius:2px;
color:var(--text)}
.t0{background:var(--t0)}.t1{background:var(--t1)}.t2{background:var(--t2)}.t3{
background:var(--t3)}
.doc i,.tok i{font-style:normal;color:var(--esc);border-bottom:1px dotted}
.doc s,.tok s{text-decoration:none}
.tok s{white-space:normal}
.doc s::before,.tok s::before{content:"\\21b5";color:var(--esc)}
.tok{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre-wrap;
overflow-wrap:anywhere}
.special,.unknown{border:1px solid var(--special);color:var(--special)!important;padding:0 .25em}
.unknown{border-color:var(--warn);color:var(--warn)!important}
.note{border-left:3px solid var(--second);padding-left:.75rem}
.pair{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:1rem}
footer{margin-top:3rem;padding-bottom:2rem;color:var(--soft)}
@media(max-width:40rem){.wide{display:none}.narrow{display:block}.big dd{font-size:1.25rem}
.pair{grid-template-columns:minmax(0,1fr)}}
@media print{details::details-content{content-visibility:visible}nav{display:none}.doc{
max-height:none}}
@media(forced-colors:active){.doc b{outline:1px solid}svg .bar,svg .bar2{fill:CanvasText}}
""".strip()
