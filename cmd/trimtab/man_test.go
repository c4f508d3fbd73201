package main

import (
	"testing"

	"github.com/trimtab/trimtab/internal/tools/manpages"
)

// TestMan compares docs/man with the commands' own help; with -update,
// as go generate calls it, it writes the pages.
func TestMan(t *testing.T) {
	const dir = "../../docs/man"
	root, _ := newRoot()
	if *update {
		if err := manpages.Write(dir, root); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := manpages.Differences(dir, root); d != "" || err != nil {
		t.Errorf("docs/man is stale, run go generate ./... (-want +have):\n%s%v", d, err)
	}
}
