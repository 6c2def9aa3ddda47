/* SPDX-License-Identifier: Apache-2.0
 * tokpre.c - the table of pre-tokenizers.
 *
 * Facts of the tokenizer.json of the models that the names stand for, put together from the parts
 * they share. llama.cpp cuts by the same patterns but for characters that its own tables know
 * otherwise; docs/tokenizer.md says where. */
#include "token/compile/tokpre.h"

#include "token/compile/tokparts.h"

#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LINES        "\\s*[\\r\\n]+|"
#define BLANKS       LINES "\\s+(?!\\S)|\\s+"
#define LETTERS      "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SIGNS        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" SIGNS "|" BLANKS
#define QWEN2  CONTRACTIONS "|" LETTERS "|\\p{N}|" SIGNS "|" BLANKS
#define QWEN35                                                                                     \
    CONTRACTIONS                                                                                   \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS
/* Words of capitals and words of small letters, with what may follow them. */
#define CASED(digits, tail)                                                                        \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER    \
    "*" tail "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS
#define ASCII_SIGNS "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DEEPSEEK_WORDS                                                                             \
    ASCII_SIGNS "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
#define DEEPSEEK3 DEEPSEEK_WORDS "[\\r\\n]*|" BLANKS
#define KANA_HAN  "[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+"

#define SEED CONTRACTIONS "|" LETTERS "|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" BLANKS
#define BAILING                                                                                    \
    CONTRACTIONS "|" LETTERS "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define BLOOM " ?[^(\\s|.,!?\\u2026\\u3002\\uff0c\\u3001\\u0964\\u06d4\\u060c)]+"
#define CJK   "[\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff]+"

/* Runs of blanks halve in length. */
#define JAIS2                                                                                      \
    CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" SIGNS "|" LINES                                       \
                 "\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|"  \
                 "\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"
/* Numbers in threes, counted from their end. */
#define THREES "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))"
#define AFMOE_SCRIPTS                                                                              \
    "[\\u4e00-\\u9fff\\u3400-\\u4dbf\\u8c48-\\ufaff\\u3040-\\u309f\\u30a0-\\u30ff\\uff65-\\uff9f"  \
    "\\u2f00-\\u2fdf\\u0e40-\\u0e7f\\u0e80-\\u0eff\\u1780-\\u17ff\\u1000-\\u109f\\uaa60-\\uaa7f"   \
    "\\ua9e0-\\ua9ff\\uac00-\\ud7af\\u1100-\\u11ff]+"
#define YOUTU_SCRIPTS                                                                              \
    "[\\uac00-\\ud7a3\\u3131-\\u318e]+|"                                                           \
    "[\\uff01\\u2026\\u201c\\u201d\\u2018\\u2019\\u2014\\uff1a\\uff1b\\uff0c\\u3001-\\u303f"       \
    "\\ufe30-\\ufe4f]+|[\\u3105-\\u312f]+|" KANA_HAN
#define EXAONE_MOE                                                                                 \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}"             \
                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
/* As CASED, but Chinese characters stand by themselves. */
#define NO_HAN "(?!\\p{Han})"
#define KIMI                                                                                       \
    "\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?(?:" NO_HAN UPPER ")*(?:" NO_HAN LOWER ")+" CONTRACTIONS      \
    "?|[^\\r\\n\\p{L}\\p{N}]?(?:" NO_HAN UPPER ")+(?:" NO_HAN LOWER ")*" CONTRACTIONS              \
    "?|\\p{N}{1,3}|" SIGNS "|" BLANKS
/* Letters of Latin, Greek, Cyrillic, Armenian, Georgian, Cherokee, Glagolitic, Deseret and others:
 * those that have two cases. */
#define DEEPSEEK_LETTERS                                                                           \
    "\\s?[A-Za-z\\u00b5\\u00c0-\\u00d6\\u00d8-\\u00f6\\u00f8-\\u01ba\\u01bc-\\u01bf\\u01c4-"       \
    "\\u0293\\u0295-\\u02af\\u0370-\\u0373\\u0376\\u0377\\u037b-\\u037d\\u037f\\u0386"             \
    "\\u0388-\\u038a\\u038c\\u038e-\\u03a1\\u03a3-\\u03f5\\u03f7-\\u0481\\u048a-\\u052f"           \
    "\\u0531-\\u0556\\u10a0-\\u10c5\\u13a0-\\u13f5\\u13f8-\\u13fd\\u1c90-\\u1cba\\u1cbd-"          \
    "\\u1cbf\\u1d00-\\u1d2b\\u1d6b-\\u1d77\\u1d79-\\u1d9a\\u1e00-\\u1f15\\u1f18-\\u1f1d"           \
    "\\u1f20-\\u1f45\\u1f48-\\u1f4d\\u1f50-\\u1f57\\u1f59\\u1f5b\\u1f5d\\u1f5f-\\u1f7d"            \
    "\\u1f80-\\u1fb4\\u1fb6-\\u1fbc\\u1fbe\\u1fc2-\\u1fc4\\u1fc6-\\u1fcc\\u1fd0-\\u1fd3"           \
    "\\u1fd6-\\u1fdb\\u1fe0-\\u1fec\\u1ff2-\\u1ff4\\u1ff6-\\u1ffc\\u2102\\u2107\\u210a-"           \
    "\\u2113\\u2115\\u2119-\\u211d\\u2124\\u2126\\u2128\\u212a-\\u212d\\u212f-\\u2134"             \
    "\\u2139\\u213c-\\u213f\\u2145-\\u2149\\u214e\\u2183\\u2184\\u2c00-\\u2c7b\\u2c7e-"            \
    "\\u2ce4\\u2ceb-\\u2cee\\u2cf2\\u2cf3\\ua640-\\ua66d\\ua680-\\ua69b\\ua722-\\ua76f"            \
    "\\ua771-\\ua787\\ua78b-\\ua78e\\uab70-\\uabbf\\ufb00-\\ufb06\\ufb13-\\ufb17\\uff21-"          \
    "\\uff3a\\uff41-\\uff5a\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}"        \
    "\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+"
/* Runs of line breaks are words of their own. */
#define LINES_APART "[^\\n]+|\\n+"

static const tg_tok_pre rows[] = {
    {.name = "gpt-2", .patterns = {GPT2}},
    {.name = "phi-2", .patterns = {GPT2}},
    {.name = "olmo", .patterns = {GPT2}},
    {.name = "mpt", .patterns = {GPT2}},
    {.name = "exaone4", .patterns = {GPT2}},
    {.name = "gigachat", .patterns = {GPT2}},
    {.name = "a.x-4.0", .patterns = {GPT2}},
    {.name = "mellum", .patterns = {GPT2}},
    {.name = "modern-bert", .patterns = {GPT2}},
    {.name = "jais", .patterns = {GPT2}},
    {.name = "trillion", .patterns = {GPT2}},
    {.name = "granite-docling", .patterns = {GPT2}},
    {.name = "smollm", .patterns = {"\\p{N}", GPT2}},
    {.name = "starcoder", .patterns = {"\\p{N}", GPT2}},
    {.name = "refact", .patterns = {"\\p{N}", GPT2}},
    {.name = "command-r", .patterns = {"\\p{N}", GPT2}},
    {.name = "codeshell", .patterns = {"\\p{N}", GPT2}},
    {.name = "exaone", .patterns = {"\\p{N}", GPT2}},
    {.name = "minerva-7b", .patterns = {"\\p{N}", GPT2}},
    {.name = "falcon", .patterns = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {.name = "llama3", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "llama-v3", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "llama-bpe", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "falcon3", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "pixtral", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "lfm2", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "falcon-h1", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "midm-2.0", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "dbrx", .patterns = {LLAMA3}},
    {.name = "smaug-bpe", .patterns = {LLAMA3}},
    {.name = "chatglm-bpe", .patterns = {LLAMA3}},
    {.name = "glm4", .patterns = {LLAMA3}, .ignores_merges = true},
    {.name = "glm5", .patterns = {LLAMA3}, .ignores_merges = true},
    {.name = "qwen2", .patterns = {QWEN2}, .has_nfc = true},
    {.name = "megrez", .patterns = {QWEN2}},
    {.name = "stablelm2", .patterns = {QWEN2}},
    {.name = "deepseek-r1-qwen", .patterns = {QWEN2}},
    {.name = "kormo", .patterns = {QWEN2}},
    {.name = "f2llmv2", .patterns = {QWEN2}},
    {.name = "hunyuan", .patterns = {QWEN2}},
    {.name = "grok-2", .patterns = {QWEN2}},
    {.name = "seed-coder", .patterns = {SEED}},
    {.name = "bailingmoe", .patterns = {BAILING}},
    {.name = "bailingmoe2", .patterns = {BAILING}},
    {.name = "llada-moe", .patterns = {BAILING}},
    {.name = "deepseek-coder",
     .patterns = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}"}},
    {.name = "bloom", .patterns = {BLOOM}},
    {.name = "poro-chat", .patterns = {BLOOM}},
    {.name = "gpt3-finnish", .patterns = {BLOOM}},
    {.name = "viking", .patterns = {BLOOM, "\\p{N}"}},
    {.name = "qwen35", .patterns = {QWEN35}, .has_nfc = true},
    {.name = "deepseek-v3", .patterns = {"\\p{N}{1,3}", KANA_HAN, DEEPSEEK3}},
    {.name = "hunyuan-dense", .patterns = {"\\p{N}{1,3}", KANA_HAN, DEEPSEEK3}},
    {.name = "gpt-4o", .patterns = {CASED("\\p{N}{1,3}", CONTRACTIONS "?")}},
    {.name = "llama4", .patterns = {CASED("\\p{N}{1,3}", CONTRACTIONS "?")}},
    {.name = "kanana2", .patterns = {CASED("\\p{N}{1,3}", CONTRACTIONS "?")}},
    {.name = "minimax-m2", .patterns = {CASED("\\p{N}{1,3}", CONTRACTIONS "?")}},
    {.name = "tekken", .patterns = {CASED("\\p{N}", "")}, .ignores_merges = true, .adds_bos = true},
    {.name = "jina-es", .patterns = {GPT2}},
    {.name = "jina-de", .patterns = {GPT2}},
    {.name = "jina-v1-en", .patterns = {GPT2}},
    {.name = "jina-v2-es", .patterns = {GPT2}, .lstrip = "<mask>"},
    {.name = "jina-v2-de", .patterns = {GPT2}, .lstrip = "<mask>"},
    {.name = "jina-v2-code", .patterns = {GPT2}, .lstrip = "<mask>"},
    {.name = "roberta-bpe", .patterns = {GPT2}},
    {.name = "mellum2", .patterns = {"\\p{N}", GPT2}},
    {.name = "jina-v5-nano", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "minicpm5",
     .patterns = {"\\p{N}{1,3}", CONTRACTIONS "|" LETTERS "|\\p{N}+|" SIGNS "|" BLANKS},
     .ignores_merges = true},
    {.name = "jais-2", .patterns = {JAIS2}},
    {.name = "solar-open", .patterns = {QWEN2}},
    {.name = "laguna", .patterns = {"[^\\n]+|[\\n]+", QWEN2}},
    {.name = "ufakzeka", .patterns = {LETTERS "|\\p{N}|" SIGNS "|" BLANKS}},
    {.name = "exaone-moe", .patterns = {EXAONE_MOE}},
    {.name = "superbpe", .patterns = {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
    {.name = "chameleon",
     .patterns = {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )",
                  "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]", GPT2},
     .adds_bos = true},
    {.name = "hy_v4", .patterns = {"\\p{N}{1,3}", KANA_HAN, DEEPSEEK3}},
    {.name = "joyai-llm", .patterns = {"\\p{N}{1,3}", KANA_HAN, DEEPSEEK3}},
    {.name = "spark2_5",
     .patterns = {"\\p{N}{1,3}", KANA_HAN, DEEPSEEK_WORDS "|[\\r\\n]|\\s+(?!\\S)|\\s+", "\\p{N}"}},
    {.name = "afmoe", .patterns = {THREES, AFMOE_SCRIPTS, DEEPSEEK3}},
    {.name = "deepseek-llm",
     .patterns = {"[\\r\\n]", DEEPSEEK_LETTERS,
                  "\\s?[!-/:-~\\uff01-\\uff0f\\uff1a-\\uff5e\\u2018-\\u201f\\u3000-\\u3002]+",
                  "\\s+$", CJK, "\\p{N}+"}},
    {.name = "talkie", .patterns = {CASED("\\p{N}{1,3}", CONTRACTIONS "?")}},
    {.name = "granite-embed-multi-97m",
     .patterns = {CASED("\\p{N}{1,3}", CONTRACTIONS "?")},
     .ignores_merges = true},
    {.name = "tiny_aya", .patterns = {THREES, CASED("\\p{N}{1,3}", CONTRACTIONS "?")}},
    {.name = "cohere2moe", .patterns = {THREES, CASED("\\p{N}{1,3}", CONTRACTIONS "?")}},
    {.name = "youtu",
     .patterns = {YOUTU_SCRIPTS, CASED("\\p{N}", CONTRACTIONS "?")},
     .ignores_merges = true},
    {.name = "kimi-k2", .patterns = {KIMI}},
    {.name = "gemma4", .patterns = {LINES_APART}, .adds_bos = true, .is_marked = true},
    {.name = "granite-embed-multi-311m",
     .patterns = {LINES_APART},
     .adds_bos = true,
     .is_marked = true},
    {.name = "sarvam-moe", .patterns = {LINES_APART}, .is_marked = true},
    /* The rule of files older than the key: signs apart, then words, then numbers in threes. */
    {.name = "default",
     .patterns = {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

tg_status tg_tok_pre_find(const tg_tok_pre **out, tg_str name, const char *key, tg_err *e)
{
    const char *names[TG_COUNT(rows)];
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        names[i] = rows[i].name;
        if (!tg_str_is(name, names[i])) continue;
        *out = &rows[i];
        return TG_OK;
    }
    char copy[80] = "";
    memcpy(copy, name.ptr, TG_MIN(name.len, sizeof copy - 1));
    const char *near = tg_find_nearest_name(copy, names, TG_COUNT(names));
    return tg_fail(
        e, TG_E_UNSUPPORTED,
        "%s is '%s', which is not built%s%s; use the model's Hugging Face folder instead", key,
        copy, near ? "; the nearest known is " : "", near ? near : "");
}

tg_status tg_tok_pre_add_splits(tg_tok_build *b, const tg_tok_pre *p, tg_err *e)
{
    for (size_t i = 0; i < TG_COUNT(p->patterns) && p->patterns[i]; i++)
        TG_TRY(tg_tok_add_split(b, tg_str_from_cstr(p->patterns[i]), TG_TOK_ISOLATED, false, e));
    return TG_OK;
}
