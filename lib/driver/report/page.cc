// Frame and style of pages; see the header.
#include "driver/report/page.h"

namespace mirage {

namespace {

const char* const kStyle = R"css(
:root{color-scheme:light dark;--bg:#fff;--fg:#1d2129;--soft:#5b6472;--line:#d5dae1;--card:#f4f6f8;--accent:#1f5fbf;--q:#8db5ea;--p:#2f6bc4;--s:#c6ccd4;--in:#e8edf3;--mm:#cfe0f7;--rd:#fbe3c4;--ew:#dcf0dc;--mv:#ece3f5;--out:#f7d9dc;--lp:#fff6dd;--bd:#f6f7f9;--best:#e6f4e6;--bad:#fbe5e5}
@media (prefers-color-scheme:dark){:root{--bg:#14171c;--fg:#e4e7ec;--soft:#9aa4b2;--line:#39414d;--card:#1e232b;--accent:#7fb0ff;--q:#3c6aa8;--p:#79a9ee;--s:#545d6a;--in:#29313c;--mm:#1f3b63;--rd:#574020;--ew:#23462b;--mv:#3f3057;--out:#592c33;--lp:#2c2718;--bd:#1b2027;--best:#1c3a22;--bad:#4a2226}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,"Segoe UI","DejaVu Sans",sans-serif}
main{max-width:70rem;margin:0 auto;padding:1rem}
h1{font-size:1.6rem;line-height:1.2;margin:.4rem 0;overflow-wrap:anywhere}h2{font-size:1.2rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}h4{margin:.8rem 0 .3rem}
p,li,td,summary{overflow-wrap:anywhere}
a{color:var(--accent)}
.about,.name,.legend{color:var(--soft);font-size:.85rem}.why{font-size:1.05rem}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.6rem;margin:1rem 0}
.card{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.5rem .7rem}.card b{display:block;font-size:1.25rem}.card span{color:var(--soft);font-size:.85rem;line-height:1.3;display:block}
.facts span{display:inline-block;margin-right:1.2rem}.facts i{color:var(--soft);font-style:normal}
.wide,.fig{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;margin:.4rem 0;font-size:.9rem}td,th{border:1px solid var(--line);padding:.2rem .5rem;text-align:left;vertical-align:top;min-width:3.2rem;overflow-wrap:break-word}td:last-child{min-width:9rem}th{background:var(--card)}td.n{text-align:right;white-space:nowrap}
tr.best td{background:var(--best)}tr.bad td{background:var(--bad)}
th button{font:inherit;font-weight:bold;color:inherit;background:none;border:0;padding:0;cursor:pointer;text-align:left}th[aria-sort=ascending] button::after{content:" \25B2"}th[aria-sort=descending] button::after{content:" \25BC"}
details{margin:.5rem 0;border:1px solid var(--line);border-radius:.4rem;padding:.3rem .7rem}summary{cursor:pointer}
pre{background:var(--card);padding:.8rem;overflow:auto;font-size:.8rem;border-radius:.4rem}
.fig svg{display:block;height:auto;margin:.4rem 0}
svg text{font:11px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;fill:var(--fg)}svg .u{fill:var(--soft)}svg .t{font-weight:bold}svg .b{fill:var(--soft);font-style:italic}svg .i{fill:var(--fg)}
svg rect{stroke:var(--line)}svg .in,.k.in{fill:var(--in);background:var(--in)}svg .mm,.k.mm{fill:var(--mm);background:var(--mm)}svg .rd,.k.rd{fill:var(--rd);background:var(--rd)}svg .ew,.k.ew{fill:var(--ew);background:var(--ew)}svg .mv,.k.mv{fill:var(--mv);background:var(--mv)}svg .out,.k.out{fill:var(--out);background:var(--out)}
svg .kb{fill:var(--bg);stroke:var(--soft)}svg .lp{fill:var(--lp)}svg .bd{fill:var(--bd)}svg .q{fill:var(--q);stroke:none}svg .p{fill:var(--p);stroke:none}svg .s{fill:var(--s);stroke:none}
svg .h{paint-order:stroke;stroke:var(--bg);stroke-width:4px}svg .e{fill:none;stroke:var(--soft);stroke-width:1.2}svg .g{stroke:var(--line)}svg .r{fill:none;stroke:var(--accent);stroke-width:2}svg .d{fill:var(--accent)}
@media (max-width:36rem){.fig.far::before{content:"\21C4  wider than the page: scrolls sideways";display:block;position:sticky;left:0;width:max-content;color:var(--soft);font-size:.85rem}}
@media (max-width:50rem){.fig.farther::before{content:"\21C4  wider than the page: scrolls sideways";display:block;position:sticky;left:0;width:max-content;color:var(--soft);font-size:.85rem}}
.legend>span{display:inline-block;margin-right:.8em}
@media (max-width:60rem){.wide table{font-size:.78rem}.wide td,.wide th{padding:.2rem .25rem}.wide td:last-child{min-width:5rem}}
@media (max-width:48rem){.wide table{font-size:.9rem}.wide table,.wide tbody{display:block}.wide thead{display:none}.wide table.sort thead,.wide table.sort thead tr{display:block}.wide table.sort th{display:inline-block;min-width:0;margin:0 .2rem .2rem 0}
.wide tr{display:block;border:1px solid var(--line);margin:.4rem 0;padding:.2rem .5rem}.wide td{display:block;border:0;padding:.1rem 0;min-width:0!important;overflow-wrap:anywhere}.wide td.n{text-align:left}.wide td:empty{display:none}.wide td[data-h]::before{content:attr(data-h) ": ";color:var(--soft)}}
.k{display:inline-block;width:.9em;height:.9em;border:1px solid var(--line);border-radius:2px;margin:0 .25em 0 0;vertical-align:-.1em}
)css";

}  // namespace

std::string page_begin(const std::string& title, const std::string& script) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" content=\"mirage-opt\"><meta "
         "name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>" +
         title + "</title>\n<style>" + kStyle + "</style>\n" + (script.empty() ? "" : "<script>" + script + "</script>\n") +
         "</head><body><main>\n";
}

std::string page_end() { return "</main></body></html>\n"; }

std::string sort_script() {
  return R"js(
addEventListener("DOMContentLoaded",()=>{for(const table of document.querySelectorAll("table.sort")){const heads=[...table.tHead.rows[0].cells],body=table.tBodies[0];
heads.forEach((head,i)=>head.firstElementChild.addEventListener("click",()=>{const up=head.getAttribute("aria-sort")!=="ascending";heads.forEach(h=>h.removeAttribute("aria-sort"));head.setAttribute("aria-sort",up?"ascending":"descending");
const value=row=>{const text=row.cells[i].textContent.trim(),n=parseFloat(text);return text!==""&&!isNaN(n)&&/^[-+0-9.]/.test(text)?n:text};
const rows=[...body.rows].map(row=>[value(row),row]);rows.sort((a,b)=>{const x=a[0],y=b[0];if(x===""||y==="")return(x==="")-(y==="");const order=typeof x==="number"&&typeof y==="number"?x-y:String(x).localeCompare(String(y));return up?order:-order});
body.append(...rows.map(r=>r[1]))}))}});
)js";
}

}  // namespace mirage
