package main

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
)

// logFormat is the value of the configuration key log.format. A reload of the configuration may change it.
type logFormat struct{ json atomic.Bool }

// set changes the format to "json" or "text".
func (f *logFormat) set(to string) { f.json.Store(to == "json") }

// newLog returns a logger that writes each line in the current format.
func newLog(f *logFormat, level slog.Leveler, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	return slog.New(formatHandler{f, slog.NewTextHandler(w, o), slog.NewJSONHandler(w, o)})
}

// formatHandler passes each record to the handler of the current format.
type formatHandler struct {
	format     *logFormat
	text, json slog.Handler
}

func (h formatHandler) current() slog.Handler {
	if h.format.json.Load() {
		return h.json
	}
	return h.text
}

// Enabled asks only the handler for text, because both handlers have the same level.
func (h formatHandler) Enabled(ctx context.Context, l slog.Level) bool { return h.text.Enabled(ctx, l) }
func (h formatHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.current().Handle(ctx, r)
}
func (h formatHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return formatHandler{h.format, h.text.WithAttrs(attrs), h.json.WithAttrs(attrs)}
}

func (h formatHandler) WithGroup(name string) slog.Handler {
	return formatHandler{h.format, h.text.WithGroup(name), h.json.WithGroup(name)}
}
