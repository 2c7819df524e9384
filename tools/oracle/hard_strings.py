"""Writes tests/golden/text/hard.json: texts that tokenizers get wrong."""

import random

from common import GOLDEN, write_json

SCRIPTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Größenwahn, Straße, naïve façade, coöperate, Ångström, œuvre, ŁÓDŹ",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΟΔΥΣΣΕΥΣ Σς",
    "我能吞下玻璃而不伤身体。天地玄黃,宇宙洪荒。",
    "いろはにほへと ちりぬるを カタカナ ﾊﾝｶｸ 日本語の文章",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "أنا قادر على أكل الزجاج و هذا لا يؤلمني. ١٢٣٤٥",
    "אני יכול לאכול זכוכית וזה לא מזיק לי.",
    "मैं काँच खा सकता हूँ और मुझे उससे कोई चोट नहीं पहुंचती। १२३",
    "நான் கண்ணாடி சாப்பிடுவேன் ௧௨௩",
    "ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ ๑๒๓",
    "ကျွန်တော် မှန်စားနိုင်တယ်", "ខ្ញុំអាចញុំកញ្ចក់បាន", "ສະບາຍດີ", "მინას ვჭამ", "Կրնամ ապակի ուտել", "ᚠᛇᚻ᛫ᛒᛦᚦ", "ᐊᓕᒍᖅ",
    "𐌼𐌰𐌲 𐌲𐌻𐌴𐍃", "𠜎𠜱𠝹𠱓", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 𝐀𝐁", "ℌℑℜ ℵ ⅷ Ⅻ ½ ¾ ² ³ ¹ ₀ ① ⑳ 〇 五 ㊀",
]
EMOJI = [
    "😀", "😀😀😀", "a😀b", "👩‍👩‍👧‍👦", "👍🏽 👍🏿", "🇩🇪🇫🇷🇯🇵", "1️⃣ 2️⃣ #️⃣ *️⃣", "❤️ ❤ ☺️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🧑🏻‍🚀",
    "text 🎉🎊 text", "🫠🫡🩷", "¯\\_(ツ)_/¯ (╯°□°)╯︵ ┻━┻",
]
COMBINING = [
    "e\u0301 vs \u00e9", "n\u0303o\u0308", "\u0301start", "a\u0300\u0301\u0302\u0303\u0304\u0305", "Z\u0351\u036b\u0343a\u0369\u0357l\u0357g\u034f\u035ao",
    "\u1100\u1161\u11a8 \uac01", "\u0915\u094d\u0937\u093f", "\ufb01\ufb02 \ufb00 \u01c4 \u01c6 \u1e9e \u0130 \u0131 \u017f",
    "'\u017ftop I'\u017f don'\u017f", "\u212b \u00c5 A\u030a", "\uff21\uff22\uff23\uff11\uff12\uff13", "\u2460\u2474\u249c",
]
SPACES = [
    "", " ", "  ", "   ", "    ", "\t", "\t\t", " \t ", "\n", "\n\n", "\n\n\n", " \n", "\n ", " \n ", "  \n  \n", "\r\n", "\r\n\r\n", "\r", "a\r\nb\r\n",
    "a\rb", " a", "  a", "   a", "a ", "a  ", "a   b", "a    b     c      d", " " * 15 + "x", " " * 16 + "x", " " * 17 + "x", " " * 33, "x" + " " * 64 + "y",
    "\ta\tb\t", "\t\t\tif x:\n\t\t\t\tpass", "a\u00a0b", "\u00a0\u00a0a", "a\u2003b\u2009c\u200ad", "\u3000全角\u3000", "a\u2028b\u2029c", "a\u0085b",
    "\u200b\u200b", "a\u200bb\u200cc\u200dd\u2060e\ufeff", "\ufefffile", "\u180e x \u180e", "\u1680x\u202fy\u205fz", "  \n\n  x  \n\n  y", " \r \n \t x",
    "one\n\n\n\n   two", "trailing newline\n", "trailing spaces   \n   ", "\n\tx", "x \n\n y", " \u00a0 x", "\u00a0 \n y", "\v\f\v", "a\vb\fc",
    "▁", "▁▁", " ▁", "▁ ", "a▁b", "▁a", "▁▁▁ x ▁", "a ▁ b", "Ġ Ċ ĉ Ġword", "ĠĠ", "ÃĤ", "Ā",
]
CONTROL = [
    "\u0000", "a\u0000b", "\u0001\u0002\u0003", "\u001b[31mred\u001b[0m", "\u007f", "\u0080\u0081\u009f", "\u00ad soft\u00adhyphen", "\u202eright\u202c to left\u200e\u200f",
    "\ue000\uf8ff", "\U000f0000\U0010fffd", "\ufffd", "\ufffe\uffff", "a\ufffdb\ufffd\ufffd", "\u0378\u0379", "\U0001fbff", "\U00010ffff"[:1] + "f",
    "\u1c89\u1c8a\ua7cb", "\U00010d40\U00010d41\U00010d42\U00010d43", "\U00013460\U00013461", "\U0002ebf0\U0002ebf1",
]
LOOKALIKES = [
    "<s>", "</s>", "<unk>", "<s></s>", "<s> a </s>", "a<s>b", "a <s> b </s> c", "<s>\n</s>", "< s >", "<S>", "<s", "s>", "<<s>>", "</s", "<unk><unk>", " <unk> ", "<unk> , <unk>",
    "<0x41>", "<0x0A>", "x<0xE2><0x96><0x81>y", "<0x>", "<pad>", "<|pad|>", "[PAD]", "[INST] hi [/INST]", "<<SYS>>", "<|begin_of_text|>", "<|begin_of_text|>x",
    "<|end_of_text|>", "a<|end_of_text|>b", "a <|end_of_text|> b", "<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>", "<|reserved_special_token_0|>",
    "<|reserved_special_token_247|>", "<|reserved_special_token_999|>", "<|begin_of_text", "|begin_of_text|>", "<|begin_of_text|", "<|<|begin_of_text|>|>", "<|BEGIN_OF_TEXT|>",
    "<|endoftext|>", "x<|endoftext|>y<|endoftext|>", "<|endoftext|><|endoftext|>", "<|", "|>", "<||>", "<mask>", "<mask> x", "x <mask> y", "x  <mask>  y", "<extra>", "pre<extra>post", "an extra word",
    "extraordinary", "extra", "extra!", "_extra_", "extra extra", "EXTRA", "<NORM>", "<norm>", "A<Norm>B",
]
NUMBERS = [
    "0", "1", "12", "123", "1234", "12345", "123456", "1234567890", "3.14159", "1,000,000", "1e-10", "0xDEADBEEF", "2024-01-02T03:04:05Z", "$1.50", "50%", "1/2", "10^9", "-42", "+7",
    "1 2 3 4", "a1b22c333d4444", "١٢٣٤٥٦", "१२३४", "ⅠⅡⅢⅣ", "½¼¾", "x² + y³ = z⁴", "v1.2.3-rc4", "192.168.0.1", "(555) 123-4567", "12345678901234567890" * 4,
]
WORDS = [
    "don't", "DON'T", "I'm you're he's we've they'll I'd", "I'M YOU'RE HE'S WE'VE THEY'LL I'D", "'s", "''s", "'", "''", "'t'", "rock'n'roll", "o'clock", "'tis 'twas", "it’s", "can’t",
    "x's's", "a'lla", "'Ll", "'vE", "' s", "'\u212a", "hello", "Hello", "HELLO", "hElLo", "hello world", "hello, world!", "hello,world", "Hello\nWorld", "supercalifragilisticexpialidocious",
    "antidisestablishmentarianism", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ababababababababababababababababab", "thethethethethe", "a", "ab", "abc", "é", "中", "ROMEO:", "ROMEO: What light",
    "But soft, what light through yonder window breaks?", "=", " = Robert Boulter = \n", " @-@ @,@ @.@ ", "snake_case camelCase PascalCase kebab-case SCREAMING_CASE",
]
CODE = [
    "def f(x):\n    return x ** 2  # square\n", "for (int i = 0; i < n; ++i) {\n\ta[i] += b[i]; // add\n}\n", "#include <vector>\nstd::vector<int> v{1, 2, 3};",
    "SELECT * FROM t WHERE a >= 10 AND b != 'x';", "{\"key\": [1, 2.5, null, true], \"nested\": {\"a\": \"b\\n\"}}", "<html><body class=\"x\">&nbsp;</body></html>", "https://example.org/path?q=1&r=%20#frag",
    "user.name+tag@example.co.uk", "C:\\Windows\\System32", "$HOME/.config/*.json", "`code` **bold** _it_ ~~no~~", "```python\nprint('hi')\n```", "!!!", "???!!!...", "----------", "==========", "########", "/* */ // -- ;;",
    "a+b=c", "a + b = c", "()[]{}<>", "«quotes» „deutsch“ “english” 「日本」", "…—–‐‑", "a...b", "...a", "!a", "-a-b-", "\\n\\t\\\\", "@user #tag $var %d ^ & * ~ |", "x\n#y\n", "}\n\n\n}", "});\r\n\r\n",
    "€100 £5 ¥3", "∀x∈ℝ: ∃y≤x ⇒ ∑∫√", "♠♥♦♣ ★☆ ✓✗ ←↑→↓", "°C ™ © ®", "§1 ¶2 †‡",
]


def random_strings(count):
    """Mixtures of everything above, and of random characters."""
    draw = random.Random(20240601)
    parts = [text for group in (SCRIPTS, EMOJI, COMBINING, SPACES, CONTROL, LOOKALIKES, NUMBERS, WORDS, CODE) for text in group if 0 < len(text) < 40]
    ranges = [(0x20, 0x7F), (0x20, 0x7F), (0x20, 0x7F), (0xA0, 0x250), (0x370, 0x600), (0x900, 0xE80), (0x2000, 0x2100), (0x3040, 0x3100), (0x4E00, 0x9FA0), (0x1F300, 0x1FAFF)]
    strings = []
    for i in range(count):
        if i % 2:
            strings.append("".join(draw.choice(parts) for _ in range(draw.randint(2, 5))))
        else:
            strings.append("".join(chr(draw.randrange(*draw.choice(ranges))) for _ in range(draw.randint(1, 30))))
    return strings


def hard_strings():
    strings = SCRIPTS + EMOJI + COMBINING + SPACES + CONTROL + LOOKALIKES + NUMBERS + WORDS + CODE + random_strings(120)
    return [text for text in dict.fromkeys(strings) if not any(0xD800 <= ord(c) < 0xE000 for c in text)]


def write_hard_strings():
    strings = hard_strings()
    write_json(GOLDEN / "text" / "hard.json", strings)
    return strings
