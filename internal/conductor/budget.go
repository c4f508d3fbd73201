package conductor

import (
	"context"
	"fmt"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Patient is a Carrier whose runtime goes on without an answer after a while.
type Patient interface {
	// AnswersWithin is how long the runtime waits for the answer to one event; 0 where
	// there is no end.
	AnswersWithin() time.Duration
}

// Of the time a runtime gives for an answer, so much may be waited for others: pod
// specs, devices, hook servers. The rest is for deciding, the kernel and the way back.
const waitShare, ofShares = 3, 4

// budget bounds all that an event waits for together by what the runtime waits for its
// answer, which is returned too. free is called when the event is over. A Synchronize
// is answered before it is done.
func budget(ctx context.Context, from Carrier, ev *lifecycle.Event) (bounded context.Context, limit time.Duration, free func()) {
	if p, ok := from.(Patient); ok && ev.Kind != lifecycle.Synchronize {
		limit = p.AnswersWithin()
	}
	if end, told := ctx.Deadline(); told && ev.Kind != lifecycle.Synchronize {
		if left := time.Until(end); limit <= 0 || left < limit {
			limit = max(left, time.Nanosecond)
		}
	}
	if limit <= 0 {
		return ctx, 0, func() {}
	}
	ctx, free = context.WithTimeout(ctx, limit*waitShare/ofShares)
	return ctx, limit, free
}

// skipped is the problem of something that was not waited for to the end.
func skipped(key, what, then string) lifecycle.Problem {
	return lifecycle.Problem{
		Key: key, Warning: true, Reason: what + " was not waited for to the end: the time that the runtime gives an event was over", Then: then,
	}
}

// tooLate is the problem of an answer that no runtime waited for.
func tooLate(w *work) lifecycle.Problem {
	return lifecycle.Problem{
		Warning: true, Value: w.ev.Kind.String(),
		Reason: fmt.Sprintf("the answer took %v and the runtime waits %v", w.took.Round(time.Millisecond), w.limit.Round(time.Millisecond)),
		Then:   "the runtime may have gone on without it; the kernel has what was decided once the container starts",
	}
}
