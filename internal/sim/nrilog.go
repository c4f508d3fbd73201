package sim

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/sirupsen/logrus"
)

// SetNRILog sends the logs of the NRI and ttrpc libraries to log, as debug messages. The libraries have global loggers,
// which must not change while the libraries are used. So only the first call in a process has an effect, and it must
// precede all uses of the libraries.
func SetNRILog(log *slog.Logger) {
	nriLogSet.Do(func() {
		nrilog.Set(libraryLog{log})
		logrus.SetOutput(logrusWriter{log}) // ttrpc logs with logrus
	})
}

// nriLogSet makes SetNRILog set the global loggers once, because tests run several commands in one process.
var nriLogSet sync.Once

// logrusWriter logs each line that logrus writes, as a debug message.
type logrusWriter struct{ log *slog.Logger }

// Write logs one line.
func (l logrusWriter) Write(b []byte) (int, error) {
	l.log.Debug("the ttrpc library logged a message", "text", strings.TrimSpace(string(b)))
	return len(b), nil
}

// libraryLog is the logger of the NRI library. It logs all messages except debug messages of the library.
type libraryLog struct{ log *slog.Logger }

// logf logs a message of the library as a debug message, together with the level that the library gave it.
func (l libraryLog) logf(ctx context.Context, level, format string, args []any) {
	l.log.DebugContext(ctx, "the NRI library logged a message", "level", level, "text", fmt.Sprintf(format, args...))
}

// Debugf logs nothing.
func (l libraryLog) Debugf(context.Context, string, ...any) {}

// Infof logs a message of the level info.
func (l libraryLog) Infof(ctx context.Context, format string, args ...any) {
	l.logf(ctx, "info", format, args)
}

// Warnf logs a message of the level warn.
func (l libraryLog) Warnf(ctx context.Context, format string, args ...any) {
	l.logf(ctx, "warn", format, args)
}

// Errorf logs a message of the level error.
func (l libraryLog) Errorf(ctx context.Context, format string, args ...any) {
	l.logf(ctx, "error", format, args)
}
