package hook

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/intent"
)

func TestClassEnv(t *testing.T) {
	in := &Input{Container: "a", Intent: &intent.Pod{}}
	if got := values(in, ClassEnv{Variable: "CLASS"}); len(got) > 0 {
		t.Error("a pod without a class:", got)
	}
	in.Intent.Class = intent.Sourced[intent.Class]{V: intent.Reclaimed, Key: intent.KoordQoSClass}
	if d := cmp.Diff(map[string]string{"env CLASS": "reclaimed"}, values(in, ClassEnv{Variable: "CLASS"})); d != "" {
		t.Error(d)
	}
}
