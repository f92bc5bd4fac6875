/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM kofi

#if !defined(_KOFI_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _KOFI_TRACE_H

#include <kofi/provider.h>
#include <linux/tracepoint.h>

DECLARE_EVENT_CLASS(kofi_object,
	TP_PROTO(const struct fid *fid),
	TP_ARGS(fid),
	TP_STRUCT__entry(
		__field(u32, id)
		__field(u32, fclass)
	),
	TP_fast_assign(
		__entry->id = fid->id;
		__entry->fclass = fid->fclass;
	),
	TP_printk("object %u class %u", __entry->id, __entry->fclass)
);

DEFINE_EVENT(kofi_object, kofi_open, TP_PROTO(const struct fid *fid), TP_ARGS(fid));
DEFINE_EVENT(kofi_object, kofi_close, TP_PROTO(const struct fid *fid), TP_ARGS(fid));

TRACE_EVENT(kofi_complete,
	TP_PROTO(const struct fid_ep *ep, int kind, const struct kofi_completion *done),
	TP_ARGS(ep, kind, done),
	TP_STRUCT__entry(
		__field(u32, ep)
		__field(int, kind)
		__field(const void *, context)
		__field(u64, len)
		__field(int, err)
	),
	TP_fast_assign(
		__entry->ep = ep->fid.id;
		__entry->kind = kind;
		__entry->context = done->entry.op_context;
		__entry->len = done->entry.len;
		__entry->err = done->err;
	),
	TP_printk("ep %u %s context %p bytes %llu error %d", __entry->ep,
		  __print_symbolic(__entry->kind, { KOFI_CNTR_SEND, "send" },
				   { KOFI_CNTR_RECV, "recv" }, { KOFI_CNTR_READ, "read" },
				   { KOFI_CNTR_WRITE, "write" },
				   { KOFI_CNTR_REMOTE_READ, "remote_read" },
				   { KOFI_CNTR_REMOTE_WRITE, "remote_write" }),
		  __entry->context, __entry->len, __entry->err)
);

TRACE_EVENT(kofi_event,
	TP_PROTO(const struct fid *fid, u32 event, int err, int prov_errno),
	TP_ARGS(fid, event, err, prov_errno),
	TP_STRUCT__entry(
		__field(u32, id)
		__field(u32, event)
		__field(int, err)
		__field(int, prov_errno)
	),
	TP_fast_assign(
		__entry->id = fid->id;
		__entry->event = event;
		__entry->err = err;
		__entry->prov_errno = prov_errno;
	),
	TP_printk("object %u event %u error %d reason %d", __entry->id, __entry->event,
		  __entry->err, __entry->prov_errno)
);

#endif

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
