// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Sockets: reading and writing pieces of memory. */
#include "tcp.h"

#include <linux/tcp.h>
#include <net/tcp.h>

struct workqueue_struct *ktcp_wq;

/* What every TCP socket is born with: restored before one is left to itself. */
static void (*born_data_ready)(struct sock *sk);
static void (*born_write_space)(struct sock *sk);
static void (*born_state_change)(struct sock *sk);

int ktcp_sock_new(int family, struct socket **sock)
{
	int status = sock_create_kern(&init_net, family, SOCK_STREAM, IPPROTO_TCP, sock);
	struct sock *sk;

	if (status)
		return status;
	sk = (*sock)->sk;
	sk->sk_allocation = GFP_NOIO;
	WRITE_ONCE(born_data_ready, sk->sk_data_ready);
	WRITE_ONCE(born_write_space, sk->sk_write_space);
	WRITE_ONCE(born_state_change, sk->sk_state_change);
	tcp_sock_set_nodelay(sk);
	return 0;
}

/* Softirq context, whatever happened. */
static void sock_ready(struct sock *sk)
{
	struct work_struct *work;

	rcu_read_lock();
	work = rcu_dereference_sk_user_data(sk);
	if (work) {
		if (sk->sk_socket && sk_stream_is_writeable(sk))
			clear_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
		queue_work(ktcp_wq, work);
	}
	rcu_read_unlock();
}

void ktcp_sock_watch(struct socket *sock, struct work_struct *work,
		     void (*ready)(struct sock *sk))
{
	struct sock *sk = sock->sk;

	write_lock_bh(&sk->sk_callback_lock);
	/* Sockets that a listener accepts do not inherit it. */
	__rcu_assign_sk_user_data_with_flags(sk, work, work ? SK_USER_DATA_NOCOPY : 0);
	sk->sk_data_ready = work ? ready ?: sock_ready : born_data_ready;
	sk->sk_write_space = work ? sock_ready : born_write_space;
	sk->sk_state_change = work ? sock_ready : born_state_change;
	write_unlock_bh(&sk->sk_callback_lock);
	if (work)
		queue_work(ktcp_wq, work);	/* for what came before */
	else
		synchronize_rcu();
}

/* The work is not queued any more when this returns. */
void ktcp_sock_close(struct socket *sock)
{
	if (!sock)
		return;
	ktcp_sock_watch(sock, NULL, NULL);
	sock_release(sock);
}

ssize_t ktcp_sock_recv(struct socket *sock, void *to, size_t len)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct kvec kvec = { to, len };

	return kernel_recvmsg(sock, &msg, &kvec, 1, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void piece_iter(struct msghdr *msg, unsigned int direction, const struct kofi_piece *piece,
		       struct kvec *kvec, struct bio_vec *bvec)
{
	if (piece->addr) {
		*kvec = (struct kvec){ piece->addr, piece->len };
		iov_iter_kvec(&msg->msg_iter, direction, kvec, 1, piece->len);
	} else {
		*bvec = (struct bio_vec){ piece->page, piece->len, piece->offset };
		iov_iter_bvec(&msg->msg_iter, direction, bvec, 1, piece->len);
	}
}

/* As much of a vector as comes; of a scatterlist its first piece. */
ssize_t ktcp_sock_recv_vec(struct socket *sock, const struct kofi_vec *vec)
{
	struct msghdr msg = {};
	struct kofi_piece piece;
	struct kofi_iter iter;
	struct kvec kvec;
	struct bio_vec bvec;

	if (vec->type == KOFI_BVEC) {
		iov_iter_bvec(&msg.msg_iter, ITER_DEST, vec->bvec, vec->count,
			      vec->offset + vec->len);
		iov_iter_advance(&msg.msg_iter, vec->offset);
	} else {
		kofi_iter_init(&iter, vec, 0);
		if (!kofi_iter_next(&iter, &piece, vec->len))
			return -EFAULT;
		piece_iter(&msg, ITER_DEST, &piece, &kvec, &bvec);
	}
	return sock_recvmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t ktcp_sock_send(struct socket *sock, const void *from, size_t len, bool more)
{
	struct kofi_piece piece = { .addr = (void *)from, .len = len };

	return ktcp_sock_send_piece(sock, &piece, false, more);
}

/* The page below a piece, when the socket may refer to it instead of copying. */
static struct page *splice_page(const struct kofi_piece *piece, size_t *offset, size_t *len)
{
	struct page *page = piece->page;

	*offset = piece->offset;
	*len = piece->len;
	if (piece->addr) {
		if (is_vmalloc_addr(piece->addr))
			page = vmalloc_to_page(piece->addr);
		else if (virt_addr_valid(piece->addr))
			page = virt_to_page(piece->addr);
		else
			return NULL;
		*offset = offset_in_page(piece->addr);
		*len = min_t(size_t, piece->len, PAGE_SIZE - *offset);
	}
	return page && sendpage_ok(page) ? page : NULL;
}

ssize_t ktcp_sock_send_piece(struct socket *sock, const struct kofi_piece *piece, bool splice,
			     bool more)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0) };
	struct kvec kvec;
	struct bio_vec bvec;
	size_t offset, len;
	struct page *page = splice ? splice_page(piece, &offset, &len) : NULL;

	if (page) {
		bvec = (struct bio_vec){ page, len, offset };
		msg.msg_flags |= MSG_SPLICE_PAGES | (len < piece->len ? MSG_MORE : 0);
		iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, &bvec, 1, len);
		return sock_sendmsg(sock, &msg);
	}
	piece_iter(&msg, ITER_SOURCE, piece, &kvec, &bvec);
	return sock_sendmsg(sock, &msg);
}

static struct kofi_vec part_of(const struct kofi_vec *vec, u64 at, size_t max)
{
	struct kofi_vec part = *vec;

	part.offset += at;
	part.len = at < vec->len ? min_t(u64, max, vec->len - at) : 0;
	return part;
}

ssize_t ktcp_part(struct ktcp_ep *ep, const struct kofi_vec *vec,
		  const struct ktcp_access *access, u64 rights, u64 at, size_t max,
		  struct kofi_vec *part, struct kofi_mr **mr)
{
	u32 i;

	*mr = NULL;
	if (!access) {
		*part = part_of(vec, at, max);
		return part->len;
	}
	for (i = 0; i < access->count && at >= access->target[i].len; i++)
		at -= access->target[i].len;
	if (i == access->count)
		return 0;
	max = min_t(u64, max, access->target[i].len - at);
	*mr = kofi_mr_get(ep->domain, access->target[i].key, access->target[i].addr + at, max,
			  rights);
	if (IS_ERR(*mr)) {
		ssize_t status = PTR_ERR(*mr);

		*mr = NULL;
		return status;
	}
	*part = part_of(&(*mr)->vec, access->target[i].addr + at, max);
	return part->len;
}

ssize_t ktcp_piece(struct ktcp_ep *ep, const struct kofi_vec *vec,
		   const struct ktcp_access *access, u64 rights, u64 at, size_t max,
		   struct kofi_piece *piece, struct kofi_mr **mr)
{
	struct kofi_iter iter;
	struct kofi_vec part;
	ssize_t status = ktcp_part(ep, vec, access, rights, at, max, &part, mr);

	if (status <= 0)
		return status;
	kofi_iter_init(&iter, &part, 0);
	return kofi_iter_next(&iter, piece, max) ? piece->len : 0;
}
