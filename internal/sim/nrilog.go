package sim

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/sirupsen/logrus"
)

// SetNRILog sends the logs of the NRI and ttrpc libraries to log, as debug messages. The libraries have one logger per
// process, which must not change while they run. So only main and TestMain may call it, before anything else.
func SetNRILog(log *slog.Logger) {
	nrilog.Set(libraryLog{log})
	logrus.SetOutput(lines{log}) // ttrpc's
}

// lines logs each line that logrus writes.
type lines struct{ log *slog.Logger }

func (l lines) Write(b []byte) (int, error) {
	l.log.Debug("ttrpc library", "text", strings.TrimSpace(string(b)))
	return len(b), nil
}

type libraryLog struct{ log *slog.Logger }

func (l libraryLog) logf(ctx context.Context, level, format string, args []any) {
	l.log.DebugContext(ctx, "nri library", "level", level, "text", fmt.Sprintf(format, args...))
}

func (l libraryLog) Debugf(context.Context, string, ...any) {}
func (l libraryLog) Infof(ctx context.Context, format string, args ...any) {
	l.logf(ctx, "info", format, args)
}
func (l libraryLog) Warnf(ctx context.Context, format string, args ...any) {
	l.logf(ctx, "warn", format, args)
}
func (l libraryLog) Errorf(ctx context.Context, format string, args ...any) {
	l.logf(ctx, "error", format, args)
}
