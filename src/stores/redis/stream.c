/* A socket that never blocks, plain or with TLS. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "layout.h"

/* A peer that is gone without a word is found out after some 30 seconds, also when nobody asks for anything.
 */
#define KEEPALIVE_IDLE_S 15
#define KEEPALIVE_EVERY_S 5
#define KEEPALIVE_COUNT 3

/* ---- a socket for OpenSSL ---- */

/*
 * OpenSSL's own writes by write(2), and a host that does not ignore SIGPIPE would be killed by a server that
 * closes its connections.
 */

static bool
would_block(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static bool
is_shut(void)
{
	return errno == EPIPE || errno == ECONNRESET;
}

static int
socket_read(BIO *bio, char *buf, int len)
{
	const struct stream *stream = BIO_get_data(bio);
	ssize_t n = recv(stream->fd, buf, (size_t)len, 0);

	BIO_clear_retry_flags(bio);
	if (n < 0 && would_block())
		BIO_set_retry_read(bio);
	return (int)n;
}

/* Where nothing can be written any more, a TLS that is up stays so, for what can still be read. */
static int
socket_write(BIO *bio, const char *buf, int len)
{
	struct stream *stream = BIO_get_data(bio);
	ssize_t n = send(stream->fd, buf, (size_t)len, MSG_NOSIGNAL);

	BIO_clear_retry_flags(bio);
	stream->shut = n < 0 && is_shut() && SSL_is_init_finished(stream->tls);
	if (n < 0 && (stream->shut || would_block()))
		BIO_set_retry_write(bio);
	return (int)n;
}

static long
socket_control(BIO *bio, int command, long number, void *data)
{
	(void)bio;
	(void)number;
	(void)data;
	return command == BIO_CTRL_FLUSH; /* nothing is held back */
}

/* Of no type of its own: there are few, and none is ever given back. */
static BIO_METHOD *
make_method(void)
{
	BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "idem socket");

	if (method != NULL && BIO_meth_set_read(method, socket_read) == 1 &&
	    BIO_meth_set_write(method, socket_write) == 1 && BIO_meth_set_ctrl(method, socket_control) == 1)
		return method;
	BIO_meth_free(method);
	return NULL;
}

static int
attach_socket(struct stream *stream, const struct tls *tls)
{
	BIO *bio = BIO_new(tls->socket);

	if (bio == NULL)
		return IDEM_E_NOMEM;
	BIO_set_data(bio, stream);
	BIO_set_init(bio, 1);
	SSL_set_bio(stream->tls, bio, bio); /* takes it */
	return IDEM_OK;
}

/* ---- TLS ---- */

static const char *
tls_reason(void)
{
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());

	return reason != NULL ? reason : "of an unknown cause";
}

static int
load(SSL_CTX *tls, const struct redis_uri *uri, char *why, size_t cap)
{
	int fine;

	fine = uri->ca != NULL ? SSL_CTX_load_verify_locations(tls, uri->ca, NULL)
	                       : SSL_CTX_set_default_verify_paths(tls);
	if (fine != 1)
		return idem_redis_say(why, cap, IDEM_E_INVALID, "cannot use the certificates in ca=%s: %s",
		                      uri->ca != NULL ? uri->ca : "(the system's)", tls_reason());
	if (uri->cert == NULL)
		return IDEM_OK;
	if (SSL_CTX_use_certificate_chain_file(tls, uri->cert) != 1)
		return idem_redis_say(why, cap, IDEM_E_INVALID, "cannot use the certificate in cert=%s: %s",
		                      uri->cert, tls_reason());
	if (SSL_CTX_use_PrivateKey_file(tls, uri->key, SSL_FILETYPE_PEM) != 1)
		return idem_redis_say(why, cap, IDEM_E_INVALID, "cannot use the private key in key=%s: %s",
		                      uri->key, tls_reason());
	return IDEM_OK;
}

/* One that is not known is missing: asking for it would hold up the process, at its terminal. */
static int
no_passphrase(char *buf, int size, int rwflag, void *data)
{
	(void)buf;
	(void)size;
	(void)rwflag;
	(void)data;
	return -1;
}

static SSL_CTX *
make_context(void)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());

	if (context == NULL)
		return NULL;
	(void)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	(void)SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_default_passwd_cb(context, no_passphrase);
	return context;
}

int
idem_redis_tls_init(struct tls *tls, const struct redis_uri *uri, char *why, size_t cap)
{
	int rc = IDEM_E_NOMEM;

	*tls = (struct tls){NULL, NULL};
	if (!uri->tls)
		return IDEM_OK;
	ERR_clear_error();
	tls->context = make_context();
	tls->socket = make_method();
	if (tls->context != NULL && tls->socket != NULL)
		rc = load(tls->context, uri, why, cap);
	if (rc != IDEM_OK)
		idem_redis_tls_deinit(tls);
	ERR_clear_error();
	return rc;
}

void
idem_redis_tls_deinit(struct tls *tls)
{
	SSL_CTX_free(tls->context); /* NULL is allowed here and there */
	BIO_meth_free(tls->socket);
	*tls = (struct tls){NULL, NULL};
}

/* The name must be in the certificate: RFC 9525. */
int
idem_redis_stream_secure(struct stream *stream, const struct tls *tls, const char *name)
{
	struct in6_addr ip;
	bool is_ip = inet_pton(AF_INET, name, &ip) == 1 || inet_pton(AF_INET6, name, &ip) == 1;

	ERR_clear_error();
	stream->tls = SSL_new(tls->context);
	if (stream->tls == NULL)
		return IDEM_E_NOMEM;
	SSL_set_connect_state(stream->tls);
	if (is_ip) {
		if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(stream->tls), name) != 1)
			return IDEM_E_NOMEM;
	} else if (SSL_set1_host(stream->tls, name) != 1 ||
	           SSL_set_tlsext_host_name(stream->tls, name) != 1) {
		return IDEM_E_NOMEM;
	}
	return attach_socket(stream, tls);
}

static ssize_t
tls_result(SSL *tls, int rc, char *why, size_t cap)
{
	long verified = SSL_get_verify_result(tls);

	switch (SSL_get_error(tls, rc)) {
	case SSL_ERROR_WANT_READ:
		return STREAM_WANTS_READ;
	case SSL_ERROR_WANT_WRITE:
		return STREAM_WANTS_WRITE;
	case SSL_ERROR_ZERO_RETURN:
		return STREAM_ENDED;
	case SSL_ERROR_SYSCALL:
		if (errno == 0)
			return STREAM_ENDED;
		return idem_redis_say(why, cap, STREAM_BROKEN, "%s", strerror(errno));
	default:
		if (verified != X509_V_OK)
			return idem_redis_say(why, cap, STREAM_BROKEN,
			                      "its certificate is not to be trusted: %s",
			                      X509_verify_cert_error_string(verified));
		return idem_redis_say(why, cap, STREAM_BROKEN, "TLS: %s", tls_reason());
	}
}

int
idem_redis_stream_handshake(struct stream *stream, char *why, size_t cap)
{
	int rc;

	ERR_clear_error();
	errno = 0;
	rc = SSL_do_handshake(stream->tls);
	return rc == 1 ? 0 : (int)tls_result(stream->tls, rc, why, cap);
}

/* ---- bytes ---- */

static ssize_t
plain_result(ssize_t n, int wants, char *why, size_t cap)
{
	if (n >= 0)
		return n;
	if (would_block())
		return wants;
	if (wants == STREAM_WANTS_WRITE && is_shut())
		return STREAM_SHUT;
	return idem_redis_say(why, cap, STREAM_BROKEN, "%s", strerror(errno));
}

ssize_t
idem_redis_stream_read(struct stream *stream, void *buf, size_t len, char *why, size_t cap)
{
	ssize_t n;

	errno = 0;
	if (stream->tls == NULL) {
		n = recv(stream->fd, buf, len, 0);
		return n == 0 ? STREAM_ENDED : plain_result(n, STREAM_WANTS_READ, why, cap);
	}
	ERR_clear_error();
	n = SSL_read(stream->tls, buf, (int)len);
	return n > 0 ? n : tls_result(stream->tls, (int)n, why, cap);
}

ssize_t
idem_redis_stream_write(struct stream *stream, const void *buf, size_t len, char *why, size_t cap)
{
	int n;

	errno = 0;
	if (stream->tls == NULL)
		return plain_result(send(stream->fd, buf, len, MSG_NOSIGNAL), STREAM_WANTS_WRITE, why, cap);
	ERR_clear_error();
	n = SSL_write(stream->tls, buf, (int)(len < INT32_MAX ? len : INT32_MAX));
	if (n <= 0 && stream->shut)
		return STREAM_SHUT;
	return n > 0 ? n : tls_result(stream->tls, n, why, cap);
}

/* ---- life ---- */

static void
set(int fd, int level, int option, int value)
{
	int rc = setsockopt(fd, level, option, &value, sizeof value);

	(void)rc; /* it would only be slower, or notice later */
}

int
idem_redis_stream_connect(struct stream *stream, const struct sockaddr *address, socklen_t len)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return IDEM_E_SYSTEM;
	if (address->sa_family != AF_UNIX) {
		set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
		set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
		set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
		set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S);
		set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
	}
	if (connect(fd, address, len) != 0 && errno != EINPROGRESS) {
		int error = errno;

		(void)close(fd);
		errno = error;
		return IDEM_E_SYSTEM;
	}
	stream->fd = fd;
	return IDEM_OK;
}

void
idem_redis_stream_close(struct stream *stream)
{
	SSL_free(stream->tls); /* NULL is allowed */
	if (stream->fd >= 0)
		(void)close(stream->fd);
	*stream = (struct stream){.fd = -1};
}
