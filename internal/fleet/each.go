package fleet

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// ForEachNode calls f for every node, for at most limit nodes at the same time. It returns the answers in the order of
// the nodes. After each node, it calls done with the number of finished nodes. done may be nil.
func ForEachNode[T any](ctx context.Context, nodes []Node, limit int, f func(context.Context, Node) T, done func(int)) []T {
	answers := make([]T, len(nodes))
	var (
		group    errgroup.Group
		mu       sync.Mutex // guards finished, and serialises calls of done
		finished int
	)
	group.SetLimit(limit)
	for i, n := range nodes {
		group.Go(func() error {
			answers[i] = f(ctx, n)
			mu.Lock()
			defer mu.Unlock()
			if finished++; done != nil {
				done(finished)
			}
			return nil
		})
	}
	_ = group.Wait() // f returns no error
	return answers
}
