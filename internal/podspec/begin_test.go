package podspec

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// plain is a source that answers that it knows no pod.
type plain struct {
	source  lifecycle.Source
	answers chan struct{}
	asked   atomic.Int32
}

func (p *plain) Source() lifecycle.Source                    { return p.source }
func (p *plain) Get(context.Context, string) (Update, error) { return Update{}, ErrNoSuchPod }
func (p *plain) PollSoon()                                   {}
func (p *plain) Close() error                                { return nil }
func (p *plain) Watch(ctx context.Context, tell func(Update)) error {
	p.asked.Add(1)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-p.answers:
	}
	tell(Update{Full: true})
	<-ctx.Done()
	return ctx.Err()
}

// late is a source that may not be asked at once.
type late struct {
	*plain

	may chan struct{}
}

func (l late) AwaitStart(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-l.may:
	}
}

// TestBegin: a source is not asked before its Begin returns, and not at all if a better source is up by
// then.
func TestBegin(t *testing.T) {
	t.Parallel()
	for name, better := range map[string]bool{"a better one is up": true, "none is up": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := &plain{source: lifecycle.FromKubelet, answers: make(chan struct{})}
			second := late{&plain{source: lifecycle.FromAPIServer, answers: make(chan struct{})}, make(chan struct{})}
			close(second.answers)
			if better {
				close(first.answers)
			}
			l := run(t, Options{Sources: []SpecSource{first, second}})
			until(t, "the first is asked", func() bool { return first.asked.Load() == 1 && l.States()[0].Up == better })
			if n := second.asked.Load(); n != 0 {
				t.Fatalf("the second was asked %d times before it may be", n)
			}
			close(second.may)
			if better {
				until(t, "the second rests", func() bool {
					err := l.States()[1].Err
					return err != nil && strings.Contains(err.Error(), "a source with a higher priority")
				})
			} else {
				until(t, "the second answers", func() bool { return l.States()[1].Up })
			}
			if n := second.asked.Load(); (n == 0) != better {
				t.Errorf("the second was asked %d times", n)
			}
		})
	}
}
