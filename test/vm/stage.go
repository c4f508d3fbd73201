package vm

import (
	"context"
	"fmt"

	"github.com/trimtab/trimtab/test/vm/wire"
)

// Stage is how far a guest has come when a test gets it.
type Stage int

const (
	// Bare is a kernel with cgroups mounted, busybox (or systemd) and nothing else.
	Bare Stage = iota
	// Containerd has a running containerd with NRI on, and the images of the tests.
	Containerd
)

func (s Stage) String() string { return []string{"bare", "containerd"}[s] }

// key is what the stage's snapshot depends on besides the disk.
func (s Stage) key() (string, error) {
	return s.String(), nil
}

// prepare brings a booted guest to its stage.
func (g Guest) prepare(ctx context.Context, c *channel) error {
	if g.Stage == Bare {
		return nil
	}
	_, err := c.exec(ctx, wire.Command{Argv: []string{"true"}})
	return fmt.Errorf("not yet: %w", err)
}
