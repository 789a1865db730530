
/*
 * The types that the files of the module share.
 *
 * One file for one concern:
 *
 *     ngx_http_idempotency_module.c      the module, its start and its end
 *     ngx_http_idempotency_directives.c  the directives, and what they accept
 *     ngx_http_idempotency_expressions.c those that take expressions and pointers
 *     ngx_http_idempotency_conf.c        defaults and inheritance
 *     ngx_http_idempotency_check.c       what a location is refused or warned for
 *     ngx_http_idempotency_store.c       "idempotency_store", and a worker's handle
 *     ngx_http_idempotency_store_*.c     one kind of store each
 *     ngx_http_idempotency_loop.c        nginx's events as a struct idem_loop
 *     ngx_http_idempotency_variables.c   $idempotency_...
 *     ngx_http_idempotency_handler.c     the request flow up to the verdict
 *     ngx_http_idempotency_identify.c    whose key it is, and which
 *     ngx_http_idempotency_body.c        the request's body, hashed while it arrives
 *     ngx_http_idempotency_capture.c     the response, held until it is stored
 *     ngx_http_idempotency_outcome.c     what became of the request
 *     ngx_http_idempotency_record.c      a response as the store keeps it
 *     ngx_http_idempotency_answer.c      problem documents
 *     ngx_http_idempotency_replay.c      the response of an earlier execution
 */

#ifndef _NGX_HTTP_IDEMPOTENCY_MODULE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_MODULE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <idem/idem.h>

#include "ngx_http_idempotency_compat.h"


/*
 * A body longer than this is not looked at as JSON (see idem/fingerprint.h).
 */
#define NGX_HTTP_IDEMPOTENCY_JSON_MAX  (1024 * 1024)


/*
 * In idem_response.host_flags: r->headers_out.location was set; the time of
 * Last-Modified was, and not the field.
 */
#define NGX_HTTP_IDEMPOTENCY_LOCATION       0x01
#define NGX_HTTP_IDEMPOTENCY_LAST_MODIFIED  0x02

/* In r->buffered: SSI has 1, SUB 2, COPY 4, and the field has four bits. */
#define NGX_HTTP_IDEMPOTENCY_BUFFERED  0x08


typedef enum {
    NGX_HTTP_IDEMPOTENCY_NONE = 0,       /* no decision yet */
    NGX_HTTP_IDEMPOTENCY_EXECUTED,
    NGX_HTTP_IDEMPOTENCY_REPLAYED,
    NGX_HTTP_IDEMPOTENCY_IN_PROGRESS,
    NGX_HTTP_IDEMPOTENCY_MISMATCH,
    NGX_HTTP_IDEMPOTENCY_MISSING,
    NGX_HTTP_IDEMPOTENCY_INVALID,
    NGX_HTTP_IDEMPOTENCY_IN_DOUBT,
    NGX_HTTP_IDEMPOTENCY_RELEASED,
    NGX_HTTP_IDEMPOTENCY_NOT_KEPT,
    NGX_HTTP_IDEMPOTENCY_STORE_ERROR,
    NGX_HTTP_IDEMPOTENCY_BYPASS
} ngx_http_idempotency_result_e;


typedef enum {
    NGX_HTTP_IDEMPOTENCY_REJECT = 0,
    NGX_HTTP_IDEMPOTENCY_RETRY
} ngx_http_idempotency_in_doubt_e;


typedef struct ngx_http_idempotency_store_kind_s
    ngx_http_idempotency_store_kind_t;


/*
 * One "idempotency_store".  env.store is opened by each worker when it is
 * first needed.
 */
typedef struct {
    ngx_str_t                        name;
    size_t                           size;
    ngx_msec_t                       timeout;

    const ngx_http_idempotency_store_kind_t  *kind;
    ngx_str_t                        scheme;  /* with its ":" */

    /* memory: a region that belongs to the cycle */
    ngx_fd_t                         fd;
    u_char                          *region;

    /* lmdb */
    ngx_str_t                        path;
    enum idem_lmdb_sync              sync;
    ngx_uint_t                       sync_set;

    /* on a server: may hold a password, ends with a null byte */
    ngx_str_t                        uri;

    /* a worker's own */
    struct idem_guard_env            env;
    int                              failure;  /* of the last opening */
    ngx_msec_t                       failed;
    int                              claim_failure;  /* that was logged last */
    time_t                           claim_logged;
} ngx_http_idempotency_store_t;


/* Where the key is read, if it is not a member of the body. */
typedef struct {
    ngx_http_complex_value_t         value;
    ngx_array_t                      headers;  /* ngx_str_t: "x_y" for each
                                                  $http_x_y in value */
    ngx_uint_t                       early;    /* value is one $http_... */
    ngx_uint_t                       fields;   /* it has no other variables */
} ngx_http_idempotency_key_t;


typedef struct {
    ngx_array_t                      stores;   /* ngx_http_idempotency_store_t * */

    /* the values of directives that were not given */
    ngx_http_idempotency_key_t      *key;
    ngx_http_complex_value_t        *scope;
    ngx_http_complex_value_t        *fingerprint;
    ngx_array_t                     *methods;
    ngx_array_t                     *retryable;
    ngx_array_t                     *unknown;
} ngx_http_idempotency_main_conf_t;


typedef struct {
    ngx_flag_t                       enable;
    ngx_str_t                        store_name;
    u_char                          *file;     /* where "idempotency" stands */
    ngx_uint_t                       line;
    ngx_http_idempotency_store_t    *store;    /* NULL: "off" */
    ngx_uint_t                       observe;

    ngx_http_idempotency_key_t      *key;      /* NULL if key_pointer is set */
    struct idem_pointer             *key_pointer;
    ngx_uint_t                       key_syntax;
    ngx_uint_t                       key_format;
    ngx_uint_t                       key_min;
    ngx_uint_t                       key_max;
    struct idem_key_rules            key_rules;

    ngx_flag_t                       required;
    ngx_array_t                     *methods;  /* ngx_str_t */

    ngx_http_complex_value_t        *scope;
    ngx_uint_t                       scope_required;

    ngx_http_complex_value_t        *fingerprint;
    struct idem_body_rules          *body_rules;  /* as configured */
    struct idem_body_rules           body;

    ngx_msec_t                       ttl;
    ngx_msec_t                       lease;
    ngx_msec_t                       wait;

    ngx_msec_t                       retry_after;
    ngx_uint_t                       conflict_status;
    ngx_array_t                     *retryable;   /* uint16_t */
    ngx_array_t                     *unknown;     /* uint16_t */
    struct idem_outcome_rules        outcomes;
    ngx_uint_t                       in_doubt;
    ngx_uint_t                       store_error_pass;

    size_t                           max_response;
    ngx_array_t                     *hide_headers;      /* ngx_str_t */
    ngx_str_t                        docs_url;
} ngx_http_idempotency_loc_conf_t;


/*
 * The life of a guarded request; each function of the module begins by looking
 * at it.
 *
 *     READING -> CLAIMING -> EXECUTING -> CAPTURING -> COMMITTING -> PASSING
 *                   |            |           |             ^
 *                   |            +-----------+-------------+
 *                   +-> ANSWERED (a replay or an answer of our own)
 *
 * From any of them to PASSING: the request is none of our business any more,
 * its response goes by untouched.
 */
typedef enum {
    NGX_HTTP_IDEMPOTENCY_READING = 0,  /* the request's body arrives */
    NGX_HTTP_IDEMPOTENCY_CLAIMING,     /* the guard is deciding */
    NGX_HTTP_IDEMPOTENCY_EXECUTING,    /* the content handler runs */
    NGX_HTTP_IDEMPOTENCY_CAPTURING,    /* the header of its response was seen */
    NGX_HTTP_IDEMPOTENCY_COMMITTING,   /* the store is about to acknowledge */
    NGX_HTTP_IDEMPOTENCY_PASSING,
    NGX_HTTP_IDEMPOTENCY_ANSWERED
} ngx_http_idempotency_state_e;


typedef struct {
    ngx_http_request_t              *request;
    ngx_http_idempotency_loc_conf_t *conf;     /* of the location that claimed */

    ngx_http_idempotency_state_e     state;
    ngx_http_idempotency_result_e    result;

    struct idem_body                *body;
    struct idem_guard               *guard;
    struct idem_id                   id;

    uint32_t                         attempt;
    ngx_msec_t                       wait_time;
    ngx_msec_t                       store_time;

    /* the content handler that ours stands in for */
    ngx_http_handler_pt              content_handler;

    /* the response while it is held */
    ngx_chain_t                     *held;
    ngx_chain_t                    **last_held;
    ngx_buf_t                       *tail;     /* has room, perhaps */
    size_t                           held_len;

    unsigned                         body_failed:1;   /* it could not be hashed */
    unsigned                         body_seen:1;     /* the filter saw all of it */
    unsigned                         body_hashed:1;
    unsigned                         has_id:1;
    unsigned                         started:1;       /* the content handler was */
    unsigned                         upstreamed:1;    /* an upstream answers */
    unsigned                         last_seen:1;     /* the response's last buffer */
    unsigned                         not_kept:1;      /* its body is not recorded */
    unsigned                         cut:1;           /* it ended before its end */
    unsigned                         lost:1;          /* another owner's by now */
    unsigned                         discard:1;       /* nobody wants the rest */
    unsigned                         outcome:2;       /* enum idem_outcome */
} ngx_http_idempotency_ctx_t;


/* module */

extern ngx_module_t  ngx_http_idempotency_module;

/* directives */

extern ngx_command_t  ngx_http_idempotency_commands[];

/* conf */

void *ngx_http_idempotency_create_main_conf(ngx_conf_t *cf);
void *ngx_http_idempotency_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_idempotency_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);

/* expressions */

char *ngx_http_idempotency_set_key(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_key_length(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_fingerprint_body(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
char *ngx_http_idempotency_set_scope(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_http_complex_value_t *ngx_http_idempotency_compile(ngx_conf_t *cf,
    ngx_str_t *text);
ngx_http_idempotency_key_t *ngx_http_idempotency_compile_key(ngx_conf_t *cf,
    ngx_str_t *text);

/* check */

char *ngx_http_idempotency_check(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf);

/* store */

char *ngx_http_idempotency_set_store(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_int_t ngx_http_idempotency_store_prepare(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
int ngx_http_idempotency_store_open(ngx_http_idempotency_store_t *store,
    ngx_log_t *log);
void ngx_http_idempotency_store_close(ngx_http_idempotency_store_t *store);

/* loop */

struct idem_loop *ngx_http_idempotency_loop(void);

/* variables */

ngx_int_t ngx_http_idempotency_add_variables(ngx_conf_t *cf);

/* handler */

ngx_int_t ngx_http_idempotency_handler(ngx_http_request_t *r);
ngx_http_idempotency_ctx_t *ngx_http_idempotency_get_ctx(
    ngx_http_request_t *r);
ngx_int_t ngx_http_idempotency_pass(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_result_e result);

/* identify: the key and its scope */

ngx_int_t ngx_http_idempotency_identify(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* body */

ngx_int_t ngx_http_idempotency_body_filter_init(ngx_conf_t *cf);
ngx_int_t ngx_http_idempotency_body_start(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
ngx_int_t ngx_http_idempotency_body_finish(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* capture: the response, held until it is stored */

ngx_int_t ngx_http_idempotency_capture_init(ngx_conf_t *cf);

/* outcome: what becomes of the key */

ngx_int_t ngx_http_idempotency_settle(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
ngx_int_t ngx_http_idempotency_settled_late(ngx_http_idempotency_ctx_t *ctx);
void ngx_http_idempotency_abandon(ngx_http_idempotency_ctx_t *ctx);
void ngx_http_idempotency_settled(struct idem_guard *guard, void *host);

/* record: a response as the store keeps it */

u_char *ngx_http_idempotency_record(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, size_t *len);

/* replay: the response of an earlier execution */

ngx_int_t ngx_http_idempotency_replay(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* answer: problem documents, and what a replay shares with them */

ngx_int_t ngx_http_idempotency_answer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_result_e result,
    const struct idem_problem *problem);
ngx_table_elt_t *ngx_http_idempotency_push(ngx_http_request_t *r,
    ngx_list_t *list, u_char *name, size_t name_len, u_char *value,
    size_t value_len);
ngx_chain_t *ngx_http_idempotency_chain(ngx_http_request_t *r,
    u_char *data, size_t len);
ngx_int_t ngx_http_idempotency_send_all(ngx_http_request_t *r,
    ngx_chain_t *out);
ngx_int_t ngx_http_idempotency_refuse(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_result_e result,
    enum idem_problem_code code, const char *detail);
ngx_int_t ngx_http_idempotency_problem(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, const struct idem_problem *problem,
    ngx_chain_t **out);
void ngx_http_idempotency_discard_marker(ngx_http_request_t *r);


#endif /* _NGX_HTTP_IDEMPOTENCY_MODULE_H_INCLUDED_ */
