package fleet

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// ForEachNode calls f for every node, at most parallel at a time, and returns the answers in the order of the nodes. It
// calls done after each node with the number of finished nodes. done may be nil.
func ForEachNode[T any](ctx context.Context, nodes []Node, parallel int, f func(context.Context, Node) T, done func(int)) []T {
	answers := make([]T, len(nodes))
	var (
		group errgroup.Group
		mu    sync.Mutex // guards ready, and serialises calls of done
		ready int
	)
	group.SetLimit(parallel)
	for i, n := range nodes {
		group.Go(func() error {
			answers[i] = f(ctx, n)
			mu.Lock()
			defer mu.Unlock()
			if ready++; done != nil {
				done(ready)
			}
			return nil
		})
	}
	_ = group.Wait() // f returns no error
	return answers
}
