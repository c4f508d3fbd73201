package nri

import (
	"context"
	"fmt"
	"log/slog"

	nrilog "github.com/containerd/nri/pkg/log"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// stubLog logs the messages of the NRI library's stub at level debug. The attachment itself logs what an operator
// needs, and shows it in Status.
type stubLog struct{ log *slog.Logger }

var _ nrilog.Logger = stubLog{}

// print logs a message of the stub at level debug. The parameter level is the level that the stub gave the message.
func (l stubLog) print(ctx context.Context, level, format string, args []any) {
	if ctx == nil {
		ctx = context.Background()
	}
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "the NRI stub logged a message", logkey.Level, level, logkey.Text, fmt.Sprintf(format, args...))
	}
}

// Debugf logs the stub's messages of level debug.
func (l stubLog) Debugf(ctx context.Context, format string, args ...any) {
	l.print(ctx, "debug", format, args)
}

// Infof logs the stub's messages of level info.
func (l stubLog) Infof(ctx context.Context, format string, args ...any) {
	l.print(ctx, "info", format, args)
}

// Warnf logs the stub's messages of level warn.
func (l stubLog) Warnf(ctx context.Context, format string, args ...any) {
	l.print(ctx, "warn", format, args)
}

// Errorf logs the stub's messages of level error.
func (l stubLog) Errorf(ctx context.Context, format string, args ...any) {
	l.print(ctx, "error", format, args)
}
