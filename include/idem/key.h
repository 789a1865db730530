/*
 * idem/key.h - from a header field (or any string) to a key, and from scope
 * and key to the name of a cell.
 *
 * Source: draft-ietf-httpapi-idempotency-key-header, section 2.1, where the field
 * is a String of RFC 9651 ("8e03978e-..."), and the practice of most clients, who
 * send the bare characters.  Both spellings of the same characters are the same
 * key.
 */
#ifndef IDEM_KEY_H
#define IDEM_KEY_H

#include <idem/store.h>

#ifdef __cplusplus
extern "C" {
#endif

#define IDEM_KEY_MAX 255

enum idem_key_syntax {
	IDEM_KEY_LENIENT = 0, /* an RFC 9651 String or bare visible ASCII */
	IDEM_KEY_STRICT,      /* an RFC 9651 String alone */
};

enum idem_key_format {
	IDEM_KEY_ANY = 0,
	IDEM_KEY_UUID, /* RFC 9562's text form, 8-4-4-4-12 hexadecimal digits */
};

struct idem_key_rules {
	enum idem_key_syntax syntax;
	enum idem_key_format format;
	size_t min_len; /* 1 to max_len */
	size_t max_len; /* min_len to IDEM_KEY_MAX */
};

/* Why a key was refused.  IDEM_KEY_OK is zero. */
enum idem_key_fault {
	IDEM_KEY_OK = 0,
	IDEM_KEY_EMPTY,        /* nothing, or only white space, or "" */
	IDEM_KEY_BAD_BYTE,     /* a byte that is not visible ASCII (0x21 to 0x7E) */
	IDEM_KEY_NOT_STRING,   /* strict syntax and no opening quote */
	IDEM_KEY_UNTERMINATED, /* an opening quote without its closing one */
	IDEM_KEY_BAD_ESCAPE,   /* a backslash before anything but \ or " */
	IDEM_KEY_TRAILING,     /* something after the closing quote (parameters too) */
	IDEM_KEY_TOO_SHORT,
	IDEM_KEY_TOO_LONG,
	IDEM_KEY_NOT_UUID,
};

/* A key in its one normal form: unquoted, unescaped. */
struct idem_key {
	size_t len;
	char text[IDEM_KEY_MAX];
};

/* 1..255 characters, lenient, any format. */
#define IDEM_KEY_RULES_DEFAULT                                                                               \
	{                                                                                                    \
		IDEM_KEY_LENIENT, IDEM_KEY_ANY, 1, IDEM_KEY_MAX                                              \
	}

/*
 * Parses one field value.  White space (SP, HTAB) around it is ignored.  Field lines
 * must have been counted before: a value that was combined from several is
 * not told apart from one.  *ret_key is untouched unless IDEM_KEY_OK is returned.
 */
IDEM_API enum idem_key_fault idem_key_parse(const struct idem_key_rules *rules, struct idem_bytes field,
                                            struct idem_key *ret_key) IDEM_MUST_CHECK;

/*
 * As idem_key_parse() for a value that did not come as a field (a member of a JSON body): no
 * quoting, no trimming; the bytes are the key.
 */
IDEM_API enum idem_key_fault idem_key_from_text(const struct idem_key_rules *rules, struct idem_bytes text,
                                                struct idem_key *ret_key) IDEM_MUST_CHECK;

/*
 * Writes a whole English sentence for a fault that names the rule it breaks ("The
 * key has 300 characters; at most 255 are allowed.") without repeating the key.
 * Always ends in NUL; cut short if cap is too small (160 is enough).  Returns its length.
 */
IDEM_API size_t idem_key_fault_text(enum idem_key_fault fault, const struct idem_key_rules *rules, char *buf,
                                    size_t cap);

/*
 * The cell of a key within a scope.  Both parts are hashed (SHA-256, cut to 16 bytes each, the
 * second over scope and key with their lengths), so that different pairs never
 * meet and nothing can be read back.  IDEM_OK, or IDEM_E_NOMEM when OpenSSL fails.
 */
IDEM_API int idem_id_make(struct idem_bytes scope, const struct idem_key *key,
                          struct idem_id *ret_id) IDEM_MUST_CHECK;

/* Hexadecimal of the whole id and NUL, for logs and command lines: 65 bytes. */
#define IDEM_ID_TEXT_LEN (2 * IDEM_ID_LEN + 1)
IDEM_API void idem_id_text(const struct idem_id *id, char text[IDEM_ID_TEXT_LEN]);

#ifdef __cplusplus
}
#endif

#endif
