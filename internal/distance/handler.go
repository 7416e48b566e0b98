package distance

import (
	"context"
	"io"
	"net/http"
)

// Handler slows the answers of an HTTP server.
func (d Distance) Handler(inner http.Handler) http.Handler {
	if d.IsZero() {
		return inner
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.wait(r.Context()) != nil {
			return // the client has gone
		}
		if d.BytesPerSecond <= 0 {
			inner.ServeHTTP(w, r)
			return
		}
		p := &responseWriter{ResponseWriter: w, ctx: r.Context(), p: d.newPacer()}
		inner.ServeHTTP(p, r)
		_ = p.p.passed(p.ctx, 0, true) // it fails only if the client has gone
	})
}

type responseWriter struct {
	http.ResponseWriter
	ctx context.Context
	p   pacer
}

func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *responseWriter) Write(b []byte) (int, error) {
	done := 0
	for len(b) > 0 {
		n, err := w.ResponseWriter.Write(b[:min(len(b), w.p.most())])
		done += n
		if err == nil {
			err = w.p.passed(w.ctx, n, false)
		}
		if err != nil {
			return done, err
		}
		b = b[n:]
	}
	return done, nil
}

// ReadFrom keeps the server's way of sending a file without copying it (io.Copy asks for this method): quantum by quantum.
func (w *responseWriter) ReadFrom(r io.Reader) (int64, error) {
	var done int64
	src, limit := r, int64(-1)
	if lr, ok := r.(*io.LimitedReader); ok { // taken apart, since sendfile looks through one LimitedReader only
		src, limit = lr.R, max(0, lr.N)
		defer func() { lr.N = limit }()
	}
	for limit != 0 {
		most := int64(w.p.most())
		if limit > 0 {
			most = min(most, limit)
		}
		n, err := io.CopyN(w.ResponseWriter, src, most)
		done += n
		if limit > 0 {
			limit -= n
		}
		if perr := w.p.passed(w.ctx, int(n), false); perr != nil {
			return done, perr
		}
		if err == io.EOF {
			return done, nil
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
