package main

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
)

// logFormat is log.format. A reload changes it for later lines.
type logFormat struct{ json atomic.Bool }

func (f *logFormat) set(to string) { f.json.Store(to == "json") }

// newLog returns a log that writes each line in the current format.
func newLog(f *logFormat, level slog.Leveler, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	return slog.New(formatted{f, slog.NewTextHandler(w, o), slog.NewJSONHandler(w, o)})
}

// formatted passes each record to the handler of the current format.
type formatted struct {
	format     *logFormat
	text, json slog.Handler
}

func (h formatted) now() slog.Handler {
	if h.format.json.Load() {
		return h.json
	}
	return h.text
}

func (h formatted) Enabled(ctx context.Context, l slog.Level) bool  { return h.text.Enabled(ctx, l) }
func (h formatted) Handle(ctx context.Context, r slog.Record) error { return h.now().Handle(ctx, r) }
func (h formatted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return formatted{h.format, h.text.WithAttrs(attrs), h.json.WithAttrs(attrs)}
}

func (h formatted) WithGroup(name string) slog.Handler {
	return formatted{h.format, h.text.WithGroup(name), h.json.WithGroup(name)}
}
