package nri

import (
	"context"
	"fmt"
	"log/slog"

	nrilog "github.com/containerd/nri/pkg/log"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// stubLog passes the stub's messages on for debugging: what an operator needs
// to know is logged and kept in Status by the attachment itself.
type stubLog struct{ log *slog.Logger }

var _ nrilog.Logger = stubLog{}

func (l stubLog) print(ctx context.Context, level, format string, args []any) {
	if ctx == nil {
		ctx = context.Background()
	}
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "nri stub", logkey.Level, level, logkey.Text, fmt.Sprintf(format, args...))
	}
}

// Debugf implements the stub's logger, as the three below.
func (l stubLog) Debugf(ctx context.Context, format string, args ...any) {
	l.print(ctx, "debug", format, args)
}

// Infof logs what the stub finds worth knowing.
func (l stubLog) Infof(ctx context.Context, format string, args ...any) {
	l.print(ctx, "info", format, args)
}

// Warnf logs what the stub finds odd.
func (l stubLog) Warnf(ctx context.Context, format string, args ...any) {
	l.print(ctx, "warn", format, args)
}

// Errorf logs what the stub could not do.
func (l stubLog) Errorf(ctx context.Context, format string, args ...any) {
	l.print(ctx, "error", format, args)
}
