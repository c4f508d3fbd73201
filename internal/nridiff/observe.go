package nridiff

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"sync"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"golang.org/x/sync/errgroup"
)

// maxPending is the largest number of stored containers that some observers have not seen yet. Without this limit, a
// container whose creation a plugin refuses would stay stored, because the later observers never see it.
const maxPending = 256

// indexPattern matches what NRI accepts as the index of a plugin.
var indexPattern = regexp.MustCompile(`^[0-9]{2}$`)

// Options are the options of Run.
type Options struct {
	Socket string // the path of the runtime's NRI socket
	// Indices are the indices of the observers, two digits each. Plugins run in the order of their indices.
	Indices []string
	// OnResult is called, for each new container, with the result for each pair of neighbouring observers. Run makes
	// one call at a time. The runtime does not wait for OnResult.
	OnResult func(Result) error
	// OnReady is called when all observers are registered. It may be nil.
	OnReady func()
}

// IndicesError means that Options.Indices are not valid.
type IndicesError struct{ reason string }

// Error returns what is wrong.
func (b *IndicesError) Error() string { return b.reason }

// Run observes new containers until ctx ends, and then returns nil.
func Run(ctx context.Context, o Options) error {
	slices.Sort(o.Indices)
	o.Indices = slices.Compact(o.Indices)
	if len(o.Indices) < 2 {
		return &IndicesError{"at least two observers are needed, one before the plugins and one after them: for example 00,99"}
	}
	for _, i := range o.Indices {
		if !indexPattern.MatchString(i) {
			return &IndicesError{fmt.Sprintf("%q is not a plugin index: it must have two digits", i)}
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	b := &observations{indices: o.Indices, results: make(chan Result, maxPending), synced: make(chan struct{}, 2*len(o.Indices)), settingsSeen: map[string][]map[string]string{}}
	group, inner := errgroup.WithContext(ctx)
	var stubs []stub.Stub
	defer func() {
		for _, s := range stubs {
			s.Stop()
			s.Wait()
		}
	}()
	lost := make(chan struct{}, len(o.Indices))
	for n, i := range o.Indices {
		s, err := stub.New(&observer{b, n}, stub.WithPluginName("trimtab-diff"), stub.WithPluginIdx(i), stub.WithSocketPath(o.Socket), stub.WithOnClose(func() { lost <- struct{}{} }))
		if err == nil {
			err = s.Start(ctx)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("no NRI socket at %s: check that the runtime runs with NRI enabled ('trimtab doctor' says how), or name another socket with --nri-socket", o.Socket)
		}
		if err != nil {
			return fmt.Errorf("register observer %s at %s: %w", i, o.Socket, err)
		}
		stubs = append(stubs, s)
	}
	group.Go(func() error {
		b.callWhenSynced(inner, o.OnReady)
		return nil
	})
	group.Go(func() error {
		select {
		case <-lost:
			return errors.New("the runtime closed the NRI connection of an observer")
		case <-inner.Done():
			return nil
		}
	})
	group.Go(func() error { return b.deliver(inner, o.OnResult) })
	return group.Wait()
}

// observations has the settings of each container that is being created, as each observer saw them.
type observations struct {
	indices []string
	results chan Result
	synced  chan struct{} // has one value for each observer that the runtime has synchronised

	mu           sync.Mutex                     // guards the fields below
	settingsSeen map[string][]map[string]string // by container id: the settings that each observer saw
	order        []string                       // the ids in settingsSeen, oldest first
}

// callWhenSynced calls a function when the runtime has synchronised every observer. Before the synchronisation, the
// runtime sends no new containers to an observer.
func (b *observations) callWhenSynced(ctx context.Context, call func()) {
	for range b.indices {
		select {
		case <-b.synced:
		case <-ctx.Done():
			return
		}
	}
	if call != nil {
		call()
	}
}

// deliver calls onResult with each result until ctx ends or onResult returns an error.
func (b *observations) deliver(ctx context.Context, onResult func(Result) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-b.results:
			if err := onResult(r); err != nil {
				return err
			}
		}
	}
}

// observer is one NRI plugin. number is its position among the observers.
type observer struct {
	*observations

	number int
}

// Synchronize notes that the runtime has synchronised the observer.
func (o *observer) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	select {
	case o.synced <- struct{}{}:
	default:
	}
	return nil, nil
}

// CreateContainer stores the settings of the container in the runtime's request, and compares them with the settings
// that the previous observer saw. It adjusts nothing.
func (o *observer) CreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	now, err := settingsOf(c)
	if err != nil {
		return nil, nil, nil // an error would make the creation of the container fail
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.settingsSeen[c.GetId()]
	if o.number == 0 || all == nil {
		if all == nil {
			o.order = append(o.order, c.GetId())
		}
		all = make([]map[string]string, len(o.indices))
		o.settingsSeen[c.GetId()] = all
	}
	all[o.number] = now
	if o.number > 0 && all[o.number-1] != nil {
		select {
		case o.results <- Result{
			Pod: pod.GetNamespace() + "/" + pod.GetName(), Container: c.GetName(), ID: c.GetId(), From: o.indices[o.number-1], To: o.indices[o.number], Changes: compareSettings(all[o.number-1], now),
		}:
		default: // results is full: the result is dropped, because the runtime must not wait
		}
	}
	if last := o.number == len(o.indices)-1; last || len(o.order) > maxPending {
		gone := c.GetId()
		if !last {
			gone = o.order[0]
		}
		delete(o.settingsSeen, gone)
		o.order = slices.DeleteFunc(o.order, func(id string) bool { return id == gone })
	}
	return nil, nil, nil
}
