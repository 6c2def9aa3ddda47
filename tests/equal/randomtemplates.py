"""Random template programs for tests/equal/compare-templates.

A program is made by a grammar that mostly keeps to types, so that most programs render, and now and
then does not, so that refusals are compared too. The context is one of a few fixed ones: what
matters is what is done with the values.
"""

import random

STRINGS = [
    "", "a", "Hello World", "  padded \n", "héllo wörld", "日本 😀", "a,b,,c", "ΑΣ ΑΣΑ", "straße ﬁ", "x\ty\r\nz", "it's \"q\"", "<b>&'\"</b>",
    "42", "-7", " 3.5 ", "0x1f", "1_000", "1e3", "abcABC123", "one two  three", "{}-{0}", "%s|%5.2f", "\u200b\u00a0x\u3000", "\x01\x7f", "İı ǆ ŉ",
    "a\nb\n\nc", "aaa", "</think>x", "e\u0301", "\u2028", "\\n", "ß", "A_b-C d", "{'k': 1}", "[1, 2]", "null", "true", "None", "١٢٣", "½²Ⅷ", "ａＢ",
]
CONTEXTS = [
    {
        "s": "Hello World", "u": "héllo 日本 😀", "e": "", "w": " \t pad\n ", "html": "<a href='x'>&\"</a>", "lines": "one\ntwo\n\nthree\r\nfour",
        "i": 7, "neg": -3, "z": 0, "f": 2.5, "big": 1e20, "t": True, "no": False, "n": None,
        "l": [3, 1, 2], "ls": ["b", "A", "a", "B"], "mix": [1, "1", 1.0, True, None, [1]], "nest": [[1, 2], [3, [4, 5]], []], "el": [],
        "d": {"a": 1, "b": [1, 2], "B": {"c": None}, "items": 3, "é": "ü"}, "ed": {}, "dn": {"z": 3, "a": 1, "M": 2},
        "users": [{"name": "Ann", "age": 31, "on": True, "tags": ["x", "Y"]}, {"name": "bob", "age": 7, "on": False, "tags": []}, {"name": "Cid", "age": 31, "on": True, "tags": ["z"], "extra": {"k": [10, 20]}}],
        "messages": [{"role": "system", "content": "Be é."}, {"role": "user", "content": "hi <b>\n"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": {"x": [1, 2.5, True, None]}}}]}, {"role": "tool", "content": [{"type": "text", "text": "3"}]}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"p": {"type": ["string", "null"], "enum": [1, "x"], "default": 1e-07}}, "required": ["p"]}}}],
    },
    {
        "s": "ΑΣ straße", "u": "e\u0301😀", "e": " ", "w": "\n\n", "html": "&amp;<", "lines": "\x0ba\x1cb\x85c\u2028", "i": -12, "neg": 0, "z": 1, "f": -0.0, "big": 123456789012, "t": 1, "no": 0, "n": None,
        "l": [], "ls": ["", "é", "Z", "z", "É"], "mix": [], "nest": [[], [[]]], "el": [None], "d": {}, "ed": {"": {}}, "dn": {"b": None, "a": "x"},
        "users": [], "messages": [], "tools": None,
    },
]
VARIABLES = {
    "str": ["s", "u", "e", "w", "html", "lines"],
    "int": ["i", "neg", "z"],
    "float": ["f", "big"],
    "bool": ["t", "no"],
    "list": ["l", "ls", "nest", "el", "mix"],
    "dict": ["d", "ed", "dn"],
    "rows": ["users", "messages"],
    "none": ["n", "nothing"],
}
TYPES = ["str", "str", "str", "int", "float", "bool", "list", "dict", "none", "rows"]


def quote(s, rng):
    """A string literal: with escapes or without, either quote."""
    q = rng.choice("'\"")
    out = ""
    for c in s:
        if c == q or c == "\\":
            out += "\\" + c
        elif c == "\n" and rng.random() < 0.9:
            out += "\\n"
        elif c == "\r":
            out += "\\r"
        elif c == "\t" and rng.random() < 0.5:
            out += "\\t"
        elif ord(c) > 0xFFFF and rng.random() < 0.2:
            out += f"\\U{ord(c):08x}"
        elif ord(c) > 0x7F and rng.random() < 0.2:
            out += f"\\u{ord(c):04x}" if ord(c) <= 0xFFFF else c
        elif ord(c) < 0x20 and rng.random() < 0.5:
            out += f"\\x{ord(c):02x}"
        else:
            out += c
    return q + out + q


class Maker:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.names = {k: list(v) for k, v in VARIABLES.items()}  # in scope, by likely type
        self.macros = []  # (name, parameters)
        self.namespaces = []
        self.loops = 0
        self.n = 0

    # ---- choices

    def pick(self, *options):
        return self.rng.choice(options)

    def chance(self, p):
        return self.rng.random() < p

    def fresh(self, prefix="v"):
        self.n += 1
        return f"{prefix}{self.n}"

    # ---- expressions

    def expr(self, depth, kind=None):
        if kind is None or self.chance(0.06):
            kind = self.rng.choice(TYPES)
        if depth <= 0:
            return self.atom(kind)
        if self.chance(0.08):
            return self.general(depth, kind)
        return getattr(self, "make_" + kind)(depth)

    def name(self, kind):
        names = self.names.get(kind) or ["nothing"]
        return self.rng.choice(names)

    def atom(self, kind):
        r = self.rng
        if kind in ("str", "any") and self.chance(0.5):
            return quote(r.choice(STRINGS), r)
        if kind == "int" and self.chance(0.6):
            return str(r.choice([0, 1, 2, 3, 5, 10, -1, -2, 7, 100]))
        if kind == "float" and self.chance(0.6):
            return r.choice(["0.5", "1.0", "2.5", "-1.5", "1e3", "1e-7", "0.1", "3.14159", "1e16", "123456.789"])
        if kind == "bool" and self.chance(0.6):
            return r.choice(["true", "false", "True", "False"])
        if kind == "none":
            return r.choice(["none", "None", "nothing", "n", "d.nope"])
        if kind == "list" and self.chance(0.5):
            return r.choice(["[]", "[1, 2, 3]", "['a', 'B', 'c']", "[1.5, none, true]", "range(4)", "(1, 2)", "[[1, 2], [3]]", "range(1, 9, 3)", "range(3, -2, -2)"])
        if kind == "dict" and self.chance(0.5):
            return r.choice(["{}", "{'a': 1, 'b': 2}", "{'x': [1], 'y': {'z': none}}", "{1: 'one', 2.5: true, none: 0}", "dict(a=1, b='x')"])
        if kind == "rows" and self.chance(0.3):
            return "[{'name': 'q', 'age': 1}, {'name': 'P', 'age': none}]"
        return self.name(kind)

    def general(self, depth, kind):
        d = depth - 1
        form = self.rng.randrange(9)
        if form == 0:
            return f"({self.expr(d, kind)} if {self.expr(d, 'bool')} else {self.expr(d, kind)})"
        if form == 1:
            return f"({self.expr(d, kind)} if {self.expr(d, 'bool')})"
        if form == 2:
            return f"({self.expr(d, kind)} or {self.expr(d, kind)})"
        if form == 3:
            return f"({self.expr(d, 'bool')} and {self.expr(d, kind)})"
        if form == 4:
            return f"{self.paren(d, kind)}|default({self.expr(d, kind)}{self.pick('', ', true', ', boolean=true')})"
        if form == 5:
            return f"[{self.expr(d, kind)}, {self.expr(d, kind)}]|{self.pick('first', 'last')}"
        if form == 6:
            return f"{{'k': {self.expr(d, kind)}}}{self.pick('.k', chr(91) + chr(39) + 'k' + chr(39) + chr(93), '.get(' + chr(39) + 'k' + chr(39) + ')')}"
        if form == 7 and self.macros:
            return self.call()
        return f"({self.expr(d, kind)})"

    def paren(self, depth, kind):
        x = self.expr(depth, kind)
        return x if x.isidentifier() else f"({x})"

    def call(self):
        name, params = self.rng.choice(self.macros)
        args = []
        for i, p in enumerate(params):
            if self.chance(0.75):
                x = self.expr(1)
                keyword = self.chance(0.3) or (args and "=" in args[-1].split("(")[0].split("'")[0])
                args.append(f"{p}={x}" if keyword else x)
        if self.chance(0.1):
            args.append(self.pick("zz=1", "*[1]", "**{'q': 2}"))
        return f"{name}({', '.join(args)})"

    def make_str(self, depth):
        d = depth - 1
        s = lambda: self.paren(d, "str")
        r = self.rng
        small = lambda: str(r.choice([0, 1, 2, 3, -1, 5, 9]))
        lit = lambda *xs: quote(r.choice(xs or STRINGS), r)
        filters = [
            lambda: "upper", lambda: "lower", lambda: "title", lambda: "capitalize", lambda: "trim" + self.pick("", f"({lit('x', ' ', 'a')})"),
            lambda: "string", lambda: f"replace({lit('a', 'o', '', ' ', 'l')}, {lit('', 'X', 'é')}{self.pick('', ', 1', ', count=2')})",
            lambda: f"indent({self.pick('', '2', '2, true', '3, first=true, blank=true', chr(39) + '> ' + chr(39), 'width=1')})", lambda: "e", lambda: "escape", lambda: "safe", lambda: "forceescape",
            lambda: f"center({small()})", lambda: f"truncate({self.pick('5', '9', '3, true', '8, false, ' + chr(39) + '..' + chr(39), '6, leeway=0', '4, true, ' + chr(39) + chr(39) + ', 0')})",
            lambda: "reverse", lambda: "urlencode", lambda: f"format({self.expr(d)})", lambda: "tojson", lambda: "wordcount", lambda: "length",
            lambda: f"default({lit()})",
        ]
        methods = [
            lambda: "upper()", lambda: "lower()", lambda: "title()", lambda: "capitalize()", lambda: "swapcase()", lambda: "casefold()",
            lambda: f"strip({self.pick('', lit('x', 'a b', ' '))})", lambda: f"lstrip({self.pick('', lit('Hh', ' '))})", lambda: f"rstrip({self.pick('', lit('d', ' '))})",
            lambda: f"replace({lit('a', 'o', '', ' ')}, {lit('', 'X', 'é')}{self.pick('', ', 1', ', -1')})", lambda: f"removeprefix({lit('H', 'a', '')})", lambda: f"removesuffix({lit('d', 'c', '')})",
            lambda: f"ljust({small()}{self.pick('', ', ' + lit('*', 'é'))})", lambda: f"rjust({small()})", lambda: f"center({small()}, {lit('-', '日')})", lambda: f"zfill({small()})",
            lambda: f"join({self.pick('ls', self.expr(d, 'list'), lit())})", lambda: f"expandtabs({self.pick('', '4', '0')})", lambda: f"format({self.expr(d)}, {self.expr(d)}, a={self.expr(d)})",
            lambda: f"split({self.pick('', lit(',', ' ', 'o', 'ab'))}){self.pick('[0]', '[-1]', '|join(' + lit('/', '') + ')')}",
            lambda: f"{self.pick('partition', 'rpartition')}({lit(' ', 'o', ',', 'zz')})[{r.choice([0, 1, 2, -1])}]", lambda: f"translate({self.pick('{97: 66}', '{}', '{111: none, 108: ' + lit('LL') + '}')})",
            lambda: f"splitlines({self.pick('', 'true')})|join('|')",
        ]
        forms = [
            lambda: f"{s()}|{r.choice(filters)()}", lambda: f"{s()}|{r.choice(filters)()}", lambda: f"{s()}|{r.choice(filters)()}",
            lambda: f"{s()}.{r.choice(methods)()}", lambda: f"{s()}.{r.choice(methods)()}", lambda: f"{s()}.{r.choice(methods)()}",
            lambda: f"{s()} ~ {self.expr(d)}", lambda: f"{s()} + {s()}", lambda: f"{s()} * {small()}", lambda: f"{s()}[{self.slice()}]", lambda: f"{s()}[{small()}]",
            lambda: f"{self.paren(d, 'list')}|join({self.pick('', lit('-', ', ', ''))})", lambda: f"{self.expr(d)}|string", lambda: f"{self.percent(d)}",
            lambda: f"{self.paren(d, r.choice(TYPES))}|tojson({self.pick('', 'indent=2', 'sort_keys=true', 'separators=(' + chr(39) + ',' + chr(39) + ', ' + chr(39) + ':' + chr(39) + ')', 'ensure_ascii=true', 'indent=1, sort_keys=true')})",
            lambda: self.atom("str"), lambda: f"{self.paren(d, 'rows')}|map(attribute='{r.choice(['name', 'role', 'age', 'extra.k', 'nope'])}')|join(',')",
            lambda: f"{self.paren(d, 'rows')}|join(',', attribute='{r.choice(['name', 'role', 'age'])}')", lambda: f"{self.brace(d)}",
            lambda: self.pick("loop.index", "loop.cycle('a', 'b')", "loop.previtem", "loop.nextitem") if self.loops else self.atom("str"),
        ]
        return r.choice(forms)()

    def percent(self, d):
        r = self.rng
        form = r.choice(["%s", "%d", "%s|", "%%", "%5.1f", "%r"])
        kind = "str" if form[-1] in "src|" else self.pick("int", "float", "float")
        if self.chance(0.2):
            return f"'{form} {form}' % ({self.expr(d, kind)}, {self.expr(d, kind)})"
        if self.chance(0.2):
            return f"'%(a){form[1:]}' % {{'a': {self.expr(d, kind)}}}"
        return f"'{form}' % {self.paren(d, kind)}"

    def brace(self, d):
        r = self.rng
        spec = r.choice(["", "", "", ":>6", "!r", ".x"])
        kind = self.pick("int", "float") if spec and spec[-1] in "dxfeg%b,_cnG" else r.choice(TYPES)
        return f"'{{{self.pick('', '0', 'a')}{spec}}}'.format({self.expr(d, kind)}, a={self.expr(d, kind)})"

    def slice(self):
        r = self.rng
        part = lambda: self.pick("", "0", "1", "-1", "2", "-2", "5", "-9", "none", "i", "10")
        return f"{part()}:{part()}" + (f":{self.pick('', '1', '2', '-1', '-2', '3', 'none')}" if self.chance(0.4) else "")

    def make_int(self, depth):
        d = depth - 1
        a, b = lambda: self.paren(d, "int"), lambda: self.paren(d, self.pick("int", "int", "float", "bool"))
        r = self.rng
        forms = [
            lambda: f"{a()} {self.pick('+', '-', '*', '//', '%')} {b()}", lambda: f"{a()} ** {self.pick('0', '1', '2', '3', '-1', '0.5')}", lambda: f"-{a()}", lambda: f"+{a()}",
            lambda: f"{self.paren(d, self.pick('str', 'list', 'dict', 'rows'))}|{self.pick('length', 'count')}", lambda: f"{self.paren(d, 'str')}|int({self.pick('', '5', '0, 16', 'base=8', 'default=-1')})",
            lambda: f"{self.paren(d, 'float')}|int", lambda: f"{a()}|abs", lambda: f"{self.paren(d, self.pick('int', 'float'))}|round({self.pick('', '1', '0', '-1', '1, ' + chr(39) + 'ceil' + chr(39), 'method=' + chr(39) + 'floor' + chr(39))})",
            lambda: f"{self.paren(d, 'list')}|{self.pick('sum', 'min', 'max', 'first', 'last')}", lambda: f"{self.paren(d, 'rows')}|sum(attribute='age')", lambda: f"{self.paren(d, 'str')}.{self.pick('find', 'rfind', 'count', 'index', 'rindex')}({quote(r.choice(['o', 'a', '', 'l', 'zz', '日']), r)}{self.pick('', ', 1', ', -3', ', 0, 4')})",
            lambda: f"{self.paren(d, 'list')}.{self.pick('index', 'count')}({self.expr(d)})", lambda: f"{self.paren(d, 'str')}|wordcount", lambda: self.atom("int"),
            lambda: self.pick("loop.index", "loop.index0", "loop.revindex", "loop.revindex0", "loop.length", "loop.depth", "loop.depth0") if self.loops else self.atom("int"),
            lambda: f"{a()}.{self.pick('bit_length()', 'real', 'numerator', 'bit_count()', 'conjugate()')}",
        ]
        return r.choice(forms)()

    def make_float(self, depth):
        d = depth - 1
        a = lambda: self.paren(d, self.pick("float", "float", "int"))
        forms = [
            lambda: f"{a()} {self.pick('+', '-', '*', '/', '//', '%')} {a()}", lambda: f"{a()} / {self.pick('2', '3', '0.1', '7')}", lambda: f"{self.paren(d, 'str')}|float({self.pick('', '1.5', 'default=0')})", lambda: f"{self.paren(d, 'int')}|float",
            lambda: f"{a()}|round({self.pick('', '1', '2', '3', '-1')})", lambda: f"-{a()}", lambda: f"{a()}|abs", lambda: self.atom("float"), lambda: f"{self.paren(d, 'list')}|sum",
        ]
        return self.rng.choice(forms)()

    def make_bool(self, depth):
        d = depth - 1
        r = self.rng
        tests = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable", "callable", "true", "false", "odd", "even", "lower", "upper", "escaped", "sameas none", "divisibleby 3", "eq 1", "in [1, 'a']", "ne none", "gt 2", "lessthan 5", "filter", "test", "equalto('a')", "ge(1)", "divisibleby(2)", "in('abc')"]
        any_ = lambda: self.paren(d, r.choice(TYPES))
        same = lambda k: (self.paren(d, k), self.paren(d, k))
        def compare():
            k = self.pick("int", "str", "float", "list", "bool", "dict")
            x, y = same(k)
            return f"{x} {self.pick('==', '!=', '<', '<=', '>', '>=', '==')} {y}"
        def chain():
            return f"{self.paren(d, 'int')} {self.pick('<', '<=', '==')} {self.paren(d, 'int')} {self.pick('<', '>=', '!=')} {self.paren(d, 'int')}"
        forms = [
            compare, compare, chain, lambda: f"not {self.paren(d, r.choice(TYPES))}", lambda: f"{self.paren(d, 'bool')} {self.pick('and', 'or')} {self.paren(d, 'bool')}",
            lambda: f"{any_()} is {self.pick('', '', 'not ')}{r.choice(tests)}", lambda: f"{any_()} is {self.pick('', '', 'not ')}{r.choice(tests)}", lambda: f"{self.paren(d, 'str')} {self.pick('in', 'not in')} {self.paren(d, self.pick('str', 'list', 'dict'))}",
            lambda: f"{any_()} {self.pick('in', 'not in')} {self.paren(d, 'list')}", lambda: f"{self.paren(d, 'str')}.{self.pick('startswith', 'endswith')}({quote(r.choice(['H', 'a', '', 'd', ' ']), r)})",
            lambda: f"{self.paren(d, 'str')}.{self.pick('isdigit', 'isalpha', 'isalnum', 'isspace', 'isupper', 'islower', 'isascii', 'isnumeric', 'isdecimal', 'istitle', 'isidentifier', 'isprintable')}()", lambda: self.atom("bool"),
            lambda: self.pick("loop.first", "loop.last", "loop.changed(i)") if self.loops else self.atom("bool"), lambda: f"({self.paren(d, 'str')}).startswith(('H', 'a'))",
        ]
        return r.choice(forms)()

    def make_list(self, depth):
        d = depth - 1
        r = self.rng
        l = lambda: self.paren(d, self.pick("list", "list", "list", "rows", "str", "dict"))
        attr = lambda: quote(r.choice(["name", "age", "role", "tags", "extra.k", "tags.0", "nope", "content"]), r)
        filters = [
            lambda: "list", lambda: f"sort({self.pick('', 'reverse=true', 'true', 'case_sensitive=true')})", lambda: "reverse|list", lambda: "unique|list", lambda: f"batch({self.pick('2', '3, none', '2, ' + chr(39) + 'x' + chr(39))})|list",
            lambda: f"slice({self.pick('2', '3, ' + chr(39) + 'x' + chr(39))})|list", lambda: f"map({quote(r.choice(['upper', 'string', 'length', 'int', 'tojson', 'first', 'default', 'trim', 'abs', 'float', 'list', 'e']), r)})|list",
            lambda: f"{self.pick('select', 'reject')}({self.pick('', chr(39) + 'odd' + chr(39), chr(39) + 'string' + chr(39), chr(39) + 'defined' + chr(39), chr(39) + 'gt' + chr(39) + ', 1', chr(39) + 'in' + chr(39) + ', [1, 2]', chr(39) + '==' + chr(39) + ', 1', chr(39) + 'none' + chr(39))})|list",
            lambda: f"map('replace', 'a', 'X')|list", lambda: "map('join', '+')|list", lambda: f"map('attr', 'x')|list",
        ]
        rowfilters = [
            lambda: f"map(attribute={attr()}{self.pick('', ', default=0')})|list", lambda: f"{self.pick('selectattr', 'rejectattr')}({attr()}{self.pick('', ', ' + chr(39) + 'equalto' + chr(39) + ', 31', ', ' + chr(39) + 'defined' + chr(39), ', ' + chr(39) + 'in' + chr(39) + ', [7, ' + chr(39) + 'user' + chr(39) + ']', ', ' + chr(39) + '>' + chr(39) + ', 10')})|list",
            lambda: f"sort(attribute={attr()}{self.pick('', ', reverse=true')})", lambda: f"groupby({attr()}{self.pick('', ', default=1')})|list", lambda: f"unique(attribute={attr()})|list", lambda: f"{self.pick('max', 'min')}(attribute={attr()})",
        ]
        forms = [
            lambda: f"{l()}|{r.choice(filters)()}", lambda: f"{l()}|{r.choice(filters)()}", lambda: f"{self.paren(d, 'rows')}|{r.choice(rowfilters)()}", lambda: f"{self.paren(d, 'rows')}|{r.choice(rowfilters)()}", lambda: f"{l()}[{self.slice()}]", lambda: f"{self.paren(d, 'list')} + {self.paren(d, 'list')}",
            lambda: f"{self.paren(d, 'list')} * {self.pick('0', '2', '-1')}", lambda: f"[{self.expr(d)}, {self.expr(d)}]", lambda: f"({self.expr(d)}, {self.expr(d)})", lambda: f"({self.expr(d)},)", lambda: f"{self.paren(d, 'str')}.{self.pick('split', 'rsplit')}({self.pick('', quote(r.choice([',', ' ', 'o', 'aa']), r), quote(' ', r) + ', 1', 'none, 1')})",
            lambda: f"{self.paren(d, 'dict')}.{self.pick('keys', 'values', 'items')}(){self.pick('', '|list')}", lambda: f"{self.paren(d, 'dict')}|{self.pick('items|list', 'dictsort', 'dictsort(true)', 'dictsort(by=' + chr(39) + 'value' + chr(39) + ')', 'dictsort(reverse=true)', 'list')}", lambda: self.atom("list"), lambda: f"{self.paren(d, 'str')}.splitlines()",
            lambda: f"{self.paren(d, 'list')}.copy()", lambda: f"range({self.pick('3', 'i', '2, 5', '5, 0, -2', 'l|length')}){self.pick('', '|list', '[1:]', '[-1]', '[::-1]')}",
        ]
        return r.choice(forms)()

    def make_dict(self, depth):
        d = depth - 1
        r = self.rng
        key = lambda: self.pick("'a'", "'b'", "1", "'é'", "none", "true", "1.0", "s", "(1, 2)")
        forms = [
            lambda: "{" + ", ".join(f"{key()}: {self.expr(d)}" for _ in range(r.randrange(3))) + "}", lambda: f"dict({self.paren(d, 'dict')}, z={self.expr(d)})", lambda: f"{self.paren(d, 'dict')}.copy()", lambda: f"dict({self.paren(d, 'dict')}.items())", lambda: self.atom("dict"),
            lambda: f"{self.paren(d, 'rows')}|{self.pick('first', 'last')}", lambda: f"{self.paren(d, 'rows')}[{self.pick('0', '-1', '1')}]", lambda: f"dict.fromkeys({self.pick('ls', self.quoted(), '[1, 2]')}{self.pick('', ', 0')})", lambda: f"{{}}.fromkeys(ls)",
            lambda: f"dict({self.pick('[(1, 2)]', '[' + chr(39) + 'ab' + chr(39) + ']', 'ls', 'a=1')})", lambda: f"{{'a': 1}}.{self.pick('get', 'pop', 'setdefault')}({key()})",
        ]
        return r.choice(forms)()

    def quoted(self):
        return quote(self.rng.choice(STRINGS), self.rng)

    def make_rows(self, depth):
        d = depth - 1
        forms = [lambda: self.name("rows"), lambda: self.name("rows"), lambda: f"{self.name('rows')}[{self.slice()}]", lambda: f"{self.name('rows')}|sort(attribute='{self.pick('name', 'role', 'age')}')", lambda: f"{self.name('rows')}|rejectattr('{self.pick('on', 'role', 'tags')}')|list", lambda: f"({self.name('rows')} + {self.expr(d, 'rows')})"]
        return self.rng.choice(forms)()

    def make_none(self, depth):
        d = depth - 1
        forms = [lambda: self.atom("none"), lambda: f"{self.paren(d, 'dict')}.{self.pick('a', 'nope', 'items', 'b', 'é')}", lambda: f"{self.paren(d, 'dict')}[{self.pick(chr(39) + 'a' + chr(39), chr(39) + 'nope' + chr(39), '1', 'none')}]", lambda: f"{self.paren(d, 'list')}[{self.pick('0', '9', '-1', chr(39) + 'a' + chr(39))}]", lambda: f"{self.paren(d, 'dict')}.get({self.quoted()}{self.pick('', ', 5')})", lambda: f"{self.paren(d, self.rng.choice(TYPES))}.{self.pick('nope', 'x', '_y', 'real', 'count', '0', '__class__', 'upper')}", lambda: f"{self.paren(d, self.rng.choice(TYPES))}|attr({self.pick(chr(39) + 'upper' + chr(39), chr(39) + 'a' + chr(39))})"]
        return self.rng.choice(forms)()

    # ---- statements

    def text(self):
        return self.rng.choice(["", "", "", " ", "\n", "x", " y ", "\n  ", "  \n", "a\n", "\n\nb", "é ", "\t", "text {", "%}", "}} ", "\r\n", " # ", "\u00a0 "])

    def tag(self, inside):
        open_ = self.pick("{%", "{%", "{%-", "{%+")
        close = self.pick("%}", "%}", "-%}", "-%}", "+%}")
        return f"{open_} {inside} {close}"

    def out(self, depth):
        open_, close = self.pick("{{", "{{", "{{-"), self.pick("}}", "}}", "-}}")
        x = self.expr(depth)
        if self.chance(0.05):
            x += f", {self.expr(1)}"
        if self.chance(0.1):
            x += f" if {self.expr(1, 'bool')}" + (f" else {self.expr(1)}" if self.chance(0.6) else "")
        return f"{open_} {x} {close}"

    def block(self, depth, n=3):
        parts = [self.text()]
        for _ in range(self.rng.randrange(1, n + 1)):
            parts.append(self.statement(depth))
            parts.append(self.text())
        return "".join(parts)

    def statement(self, depth):
        r = self.rng
        if depth <= 0 or self.chance(0.35):
            return self.out(self.pick(1, 2, 2, 3))
        forms = [self.if_, self.if_, self.for_, self.for_, self.for_, self.set_, self.set_, self.set_block, self.macro, self.with_, self.filter_block, self.namespace, self.generation, self.comment, self.raw, self.call_block, self.block_, self.jump, self.recursive]
        return r.choice(forms)(depth - 1)

    def scoped(self, depth, names=()):
        saved = {k: list(v) for k, v in self.names.items()}
        for kind, name in names:
            self.names[kind].append(name)
            self.names[kind].append(name)
        body = self.block(depth)
        self.names = saved
        return body

    def if_(self, depth):
        s = self.tag(f"if {self.expr(2, 'bool')}") + self.block(depth, 2)
        if self.chance(0.3):
            s += self.tag(f"elif {self.expr(1, 'bool')}") + self.block(depth, 1)
        if self.chance(0.5):
            s += self.tag("else") + self.block(depth, 1)
        return s + self.tag("endif")

    def for_(self, depth):
        form = self.rng.randrange(4)
        cond = f" if {self.expr(1, 'bool')}" if self.chance(0.25) else ""
        if form == 0:
            x = self.fresh("m")
            head, names = f"for {x} in {self.expr(1, 'rows')}{cond}", [("dict", x)]
        elif form == 1:
            k, v = self.fresh("k"), self.fresh("w")
            head, names = f"for {k}, {v} in {self.paren(1, 'dict')}{self.pick('.items()', '|dictsort', '|items')}{cond}", [("str", k), ("none", v)]
        elif form == 2:
            x = self.fresh("c")
            head, names = f"for {x} in {self.expr(1, 'str')}{cond}", [("str", x)]
        else:
            x = self.fresh("x")
            head, names = f"for {x} in {self.expr(2, 'list')}{cond}", [(self.pick("int", "str", "list"), x)]
        self.loops += 1
        body = self.scoped(depth, names)
        self.loops -= 1
        s = self.tag(head) + body
        if self.chance(0.25):
            s += self.tag("else") + self.block(depth, 1)
        return s + self.tag("endfor")

    def recursive(self, depth):
        x = self.fresh("r")
        return self.tag(f"for {x} in {self.pick('nest', self.expr(1, 'list'))} recursive") + f"[{{{{ loop({x}) if {x} is sequence and {x} is not string else {x} }}}}{self.pick('', '@{{ loop.depth }}')}]" + self.tag("endfor")

    def set_(self, depth):
        kind = self.rng.choice(TYPES)
        if self.chance(0.15):
            a, b = self.fresh(), self.fresh()
            s = self.tag(f"set {a}, {b} = {self.expr(1, kind)}, {self.expr(1, kind)}")
            self.names[kind] += [a, b]
            return s
        name = self.fresh() if self.chance(0.8) else self.name(kind)
        if not name.isidentifier():
            name = self.fresh()
        s = self.tag(f"set {name} = {self.expr(2, kind)}")
        self.names[kind].append(name)
        return s

    def set_block(self, depth):
        name = self.fresh()
        s = self.tag(f"set {name}{self.pick('', '', ' | upper', ' | trim | length')}") + self.scoped(depth) + self.tag("endset")
        self.names["str"].append(name)
        return s

    def macro(self, depth):
        name, params = self.fresh("mac"), [self.fresh("p") for _ in range(self.rng.randrange(3))]
        heads, is_default = [], False
        for p in params:
            is_default = is_default or self.chance(0.4)
            heads.append(f"{p}={self.expr(1)}" if is_default else p)
        loops, self.loops = self.loops, 0
        body = self.scoped(depth, [(self.rng.choice(TYPES), p) for p in params])
        if self.chance(0.15):
            body += self.pick("{{ varargs }}", "{{ kwargs }}", "{{ caller() if caller }}", "{{ caller is defined }}")
        self.loops = loops
        s = self.tag(f"macro {name}({', '.join(heads)})") + body + self.tag("endmacro")
        self.macros.append((name, params))
        return s

    def call_block(self, depth):
        if not self.macros:
            name = self.fresh("mac")
            self.macros.append((name, []))
            head = self.tag(f"macro {name}()") + f"<{{{{ caller({self.pick('', '1')}) }}}}>" + self.tag("endmacro")
        else:
            head = ""
        p = self.fresh("q")
        return head + self.tag(f"call{self.pick('', '(' + p + ')', '(' + p + '=2)')} {self.call()}") + self.scoped(depth, [("int", p)]) + self.tag("endcall")

    def with_(self, depth):
        a = self.fresh()
        return self.tag(f"with {a} = {self.expr(1)}") + self.scoped(depth, [(self.rng.choice(TYPES), a)]) + self.tag("endwith")

    def filter_block(self, depth):
        return self.tag(f"filter {self.pick('upper', 'trim', 'indent(2)', 'replace(' + chr(39) + 'a' + chr(39) + ', ' + chr(39) + 'b' + chr(39) + ')', 'length', 'e', 'title|trim')}") + self.scoped(depth) + self.tag("endfilter")

    def namespace(self, depth):
        if not self.namespaces or self.chance(0.3):
            ns = self.fresh("ns")
            self.namespaces.append(ns)
            return self.tag(f"set {ns} = namespace(a={self.expr(1)}, b={self.expr(1)})")
        ns = self.rng.choice(self.namespaces)
        if self.chance(0.4):
            return self.pick(f"{{{{ {ns}.a }}}}", f"{{{{ {ns}.b|default('-') }}}}", f"{{{{ {ns}.c }}}}", f"{{{{ {ns}['a'] }}}}")
        return self.tag(f"set {ns}.{self.pick('a', 'b', 'c')} = {self.pick(ns + '.a, ' + ns + '.b', self.expr(2))}")

    def generation(self, depth):
        loops, self.loops = self.loops, 0
        s = self.tag("generation") + self.scoped(depth) + self.tag("endgeneration")
        self.loops = loops
        return s

    def block_(self, depth):
        name = self.fresh("blk")
        loops, self.loops = self.loops, 0
        s = self.tag(f"block {name}{self.pick('', ' scoped')}") + self.scoped(depth) + self.tag("endblock")
        self.loops = loops
        return s

    def comment(self, depth):
        return self.pick("{#", "{#-", "{#+") + self.pick(" c ", "{{ x }}", "\n c\n", "") + self.pick("#}", "-#}", "+#}")

    def raw(self, depth):
        return self.tag("raw").replace("{%+", "{%").replace("+%}", "%}") + self.pick(" {{ x }} ", "\n{% if %}\n  ", "") + self.tag("endraw")

    def jump(self, depth):
        if not self.loops:
            return self.out(2)
        return self.tag(f"if {self.expr(1, 'bool')}") + self.tag(self.pick("break", "continue")) + self.tag("endif")


def make(seed):
    """(template, context) of a seed."""
    m = Maker(seed)
    context = CONTEXTS[0 if m.chance(0.8) else 1]
    size = m.rng.random()
    if size < 0.55:
        return m.out(m.pick(1, 2, 2, 3)), context
    return m.block(m.pick(1, 2, 3), m.pick(1, 2, 4)), context
