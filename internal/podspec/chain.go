package podspec

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
	"github.com/trimtab/trimtab/internal/statefile"
)

// Answers of a source that has no spec and did not fail.
var (
	ErrUnknown = errors.New("no such pod")
	ErrLater   = errors.New("asked too recently; the source asks again soon")
)

// SpecSource is one source of pod specs.
type SpecSource interface {
	Source() lifecycle.Source
	// Get reads one pod now; the answer may have more. ErrUnknown and ErrLater are no failures.
	Get(ctx context.Context, uid string) (Update, error)
	// Soon makes Follow ask again as soon as it may, if it polls.
	Soon()
	// Follow reports all pods, and then changes, until it fails or ctx ends.
	Follow(ctx context.Context, tell func(Update)) error
	Close() error
}

// DelayedSource is a source that is not asked before Begin returns. If a better source
// is up by then, it is not asked at all.
type DelayedSource interface {
	Begin(ctx context.Context)
}

// Update is an answer of a source.
type Update struct {
	// All are pods by UID: all pods of the node if Full is set.
	All  map[string]*lifecycle.PodSpec
	Full bool
	Gone string // UID of a pod that ended
	// Pending are those of All that have not started. A pod of the map without a value has started.
	// A pod that Full leaves out has started, too; otherwise nothing is known of it.
	Pending map[string]*Pending
	// Unread are pods of the answer that cannot be read. Their earlier specs stay.
	Unread []Unread
}

// State is the state of one source.
type State struct {
	Source lifecycle.Source
	Up     bool
	Pods   int
	Err    error // why it is not up, or an error in its last answer
	// NoCPUs is why the PodResources API does not report the CPUs that the kubelet has
	// assigned; nil if it does, and for all other sources.
	NoCPUs error
}

// Options configure a chain.
type Options struct {
	// Sources are the sources, most trusted first. The chain closes them.
	Sources []SpecSource
	// Wait is the longest that a runtime's request waits for a spec.
	Wait time.Duration
	// Changed is called with the UIDs of pods whose spec is new or changed. No request
	// waits for it.
	Changed func(podUIDs []string)
	// PendingChanged is called after the pods that have not started may have changed; nil for never.
	PendingChanged func()
	// Remembered is what an earlier agent passed to Save last. Save stores the specs; nil
	// if nothing is stored.
	Remembered []byte
	Save       func([]byte) error
	Log        *slog.Logger
	// Retry is the first pause after a source failed, 1 s where 0.
	Retry time.Duration
}

// Chain has the specs of pods, from a chain of sources.
type Chain struct {
	o     Options
	wake  chan struct{}
	ready chan struct{} // closed when a source is up, or all have failed

	mu         sync.Mutex // guards all below; never held across I/O
	sources    []*sourceState
	remembered map[string]*lifecycle.PodSpec
	changed    map[string]bool
	pending    map[string]*Pending
	dirty      bool
	slowUntil  time.Time
	readyOnce  bool
	gone       ring
}

// sourceState is one source and its answers.
type sourceState struct {
	SpecSource
	up    bool
	asked bool
	err   error
	pods  map[string]*lifecycle.PodSpec
	// unread are pods of its answers that cannot be read.
	unread []Unread
}

// New makes a chain. It asks no source before Run.
func New(o Options) *Chain {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	l := &Chain{o: o, wake: make(chan struct{}, 1), ready: make(chan struct{}), changed: map[string]bool{}, pending: map[string]*Pending{}}
	for _, r := range o.Sources {
		l.sources = append(l.sources, &sourceState{SpecSource: r, pods: map[string]*lifecycle.PodSpec{}, err: errors.New("not asked yet")})
	}
	l.openReadyLocked()
	var err error
	if l.remembered, err = loadSpecs(o.Remembered); err != nil {
		o.Log.Warn("the agent ignores saved pod specs", logkey.Err, err)
	}
	return l
}

// Spec returns the known spec of a pod, without waiting; nil for none.
func (l *Chain) Spec(uid string) *lifecycle.PodSpec {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.specLocked(uid)
}

func (l *Chain) specLocked(uid string) *lifecycle.PodSpec {
	for _, r := range l.sources {
		if s := r.pods[uid]; s != nil {
			return s
		}
	}
	return l.remembered[uid]
}

// States returns the state of every source.
func (l *Chain) States() []State {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []State
	for _, r := range l.sources {
		out = append(out, State{Source: r.Source(), Up: r.up, Pods: len(r.pods), Err: r.err})
	}
	return out
}

// maxFirstWait is the longest that an agent waits for the first answer at its start.
const maxFirstWait = 2 * time.Second

// AwaitFirst returns when a source has listed the node's pods, or all have failed, at
// most after maxFirstWait. Running containers are decided with the specs known by then.
func (l *Chain) AwaitFirst(ctx context.Context) { awaitFirst(ctx, l.ready) }

// awaitFirst waits for the first answer, at most for maxFirstWait.
func awaitFirst(ctx context.Context, ready <-chan struct{}) {
	limited, cancel := context.WithTimeout(ctx, maxFirstWait)
	defer cancel()
	select {
	case <-limited.Done():
	case <-ready:
	}
}

// openReadyLocked closes ready if there is nothing more to wait for.
func (l *Chain) openReadyLocked() {
	open := !slices.ContainsFunc(l.sources, func(r *sourceState) bool { return !r.asked }) ||
		slices.ContainsFunc(l.sources, func(r *sourceState) bool { return r.up })
	if open && !l.readyOnce {
		l.readyOnce = true
		close(l.ready)
	}
}

// slowPause is how long Await returns at once after a caller waited in vain.
const slowPause = 5 * time.Second

// Await asks the sources that are up for a pod without a known spec, for at most
// Options.Wait. If no source is up, or one was slow just now, it returns at once.
func (l *Chain) Await(ctx context.Context, pod *lifecycle.Pod) {
	l.mu.Lock()
	known := l.specLocked(pod.UID) != nil
	late := time.Now().Before(l.slowUntil)
	var up []*sourceState
	for _, r := range l.sources {
		if r.up {
			up = append(up, r)
		}
	}
	l.mu.Unlock()
	if late && !known {
		for _, r := range up {
			r.Soon()
		}
	}
	if known || late || len(up) == 0 || l.o.Wait <= 0 || pod.UID == "" {
		return
	}
	limited, cancel := context.WithTimeout(ctx, l.o.Wait)
	defer cancel()
	for _, r := range up {
		u, err := r.Get(limited, pod.UID)
		if len(u.All) > 0 {
			l.apply(r, u)
		}
		switch {
		case err == nil:
			return
		case limited.Err() != nil:
			if ctx.Err() == nil { // otherwise the event's deadline ended the wait
				l.mu.Lock()
				l.slowUntil = time.Now().Add(slowPause)
				l.mu.Unlock()
			}
			r.Soon()
			l.o.Log.Debug("a source did not answer in time with a pod's spec", logkey.Source, string(r.Source()), logkey.Pod, pod.Name, logkey.Err, err)
			return
		default:
			l.o.Log.Debug("no pod spec", logkey.Source, string(r.Source()), logkey.Pod, pod.Name, logkey.Err, err)
		}
	}
}

// Run watches the sources until ctx ends, and closes them.
func (l *Chain) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, r := range l.sources {
		group.Go(func() error {
			l.watchSource(ctx, i, r)
			return r.Close()
		})
	}
	group.Go(func() error {
		l.publish(ctx)
		return nil
	})
	return group.Wait()
}

// maxRetry is the longest pause after a source has failed.
const maxRetry = 30 * time.Second

// watchSource watches one source while no better one is up.
func (l *Chain) watchSource(ctx context.Context, i int, r *sourceState) {
	if b, ok := r.SpecSource.(DelayedSource); ok {
		b.Begin(ctx)
	}
	pause := l.o.Retry
	for ctx.Err() == nil {
		if l.betterUp(i) {
			l.notNeeded(r)
			pause = l.o.Retry
		} else {
			following, stop := context.WithCancel(ctx)
			err := r.Follow(following, func(u Update) {
				pause = l.o.Retry
				l.apply(r, u)
				if l.betterUp(i) {
					stop()
					l.notNeeded(r)
				}
			})
			if following.Err() == nil {
				l.sourceFailed(ctx, r, err)
			}
			stop()
		}
		sleep.For(ctx, pause+rand.N(pause/4+1)) //nolint:gosec // only spreads load
		pause = min(2*pause, maxRetry)
	}
}

func (l *Chain) betterUp(i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.sources[:i], func(r *sourceState) bool { return r.up })
}

// notNeeded notes that a source is not asked, because a better one answers.
func (l *Chain) notNeeded(r *sourceState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.up, r.err = false, errNotNeeded
}

var errNotNeeded = errors.New("not asked: a better source answers")

// sourceFailed notes that a source failed, and logs it once. Its specs stay.
func (l *Chain) sourceFailed(ctx context.Context, r *sourceState, err error) {
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	news := r.up || r.err == nil || err == nil || r.err.Error() != err.Error()
	if err == nil {
		err = errors.New("the source ended without an error")
	}
	r.up, r.asked, r.err = false, true, err
	l.openReadyLocked()
	l.mu.Unlock()
	if news {
		l.o.Log.Info("a source of pod specs does not answer; its specs stay in use", logkey.Source, string(r.Source()), logkey.Err, err)
	}
}

// apply stores the answer of a source.
func (l *Chain) apply(r *sourceState, u Update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news, unread := r.note(u)
	if news {
		l.o.Log.Warn("a pod spec cannot be read; the one known before stays in use", logkey.Source, string(r.Source()), logkey.Err, unread)
	}
	if u.Gone != "" {
		l.forgetLocked(u.Gone)
		l.gone.add(u.Gone)
	}
	for uid, s := range u.All {
		if !u.Full && l.gone.has(uid) {
			continue // an answer from before its end, which no later list would remove
		}
		before := l.specLocked(uid)
		if have := r.pods[uid]; have == nil || !reflect.DeepEqual(*have, *s) {
			r.pods[uid] = s
		}
		if l.specLocked(uid) != before {
			l.changed[uid] = true
			l.dirty = true
		}
	}
	l.notePendingLocked(&u)
	if u.Full {
		if !r.up {
			l.o.Log.Info("a source of pod specs answers", logkey.Source, string(r.Source()), logkey.Pods, len(u.All))
		}
		r.up, r.asked, r.err = true, true, unread
		l.openReadyLocked()
		l.pruneLocked(u.All, u.Unread)
	}
	if len(l.changed) > 0 {
		signal(l.wake)
	}
}

// signal wakes the goroutine that waits on the channel, now or later.
func signal(woken chan<- struct{}) {
	select {
	case woken <- struct{}{}:
	default:
	}
}

// note stores which pods cannot be read, and returns that as an error. news reports
// whether to log it: once, not at every answer.
func (r *sourceState) note(u Update) (news bool, unread error) {
	before := unreadError(r.unread)
	if u.Full {
		r.unread = nil
	}
	r.unread = slices.DeleteFunc(r.unread, func(x Unread) bool { return u.All[x.UID] != nil || u.Gone != "" && x.UID == u.Gone })
	for _, x := range u.Unread {
		r.unread = append(slices.DeleteFunc(r.unread, func(y Unread) bool { return y.UID == x.UID }), x)
	}
	unread = unreadError(r.unread)
	if r.up {
		r.err = unread
	}
	return unread != nil && (before == nil || before.Error() != unread.Error()), unread
}

func (l *Chain) forgetLocked(uid string) {
	for _, r := range l.sources {
		delete(r.pods, uid)
	}
	delete(l.remembered, uid)
	delete(l.pending, uid)
	delete(l.changed, uid)
	l.dirty = true
}

// pruneLocked forgets pods that a complete list lacks: every source reports the same
// kubelet's pods. It keeps pods that could not be read. If one of those has no UID it
// keeps all, because it may be any of them.
func (l *Chain) pruneLocked(all map[string]*lifecycle.PodSpec, unread []Unread) {
	there := map[string]bool{}
	for _, u := range unread {
		if there[u.UID] = true; u.UID == "" {
			return
		}
	}
	gone := map[string]bool{}
	note := func(pods map[string]*lifecycle.PodSpec) {
		for uid := range pods {
			if all[uid] == nil && !there[uid] {
				gone[uid] = true
			}
		}
	}
	for _, r := range l.sources {
		note(r.pods)
	}
	note(l.remembered)
	for uid := range gone {
		l.forgetLocked(uid)
	}
}

// debounce is how long changes are collected before they are reported, savePause the
// least time between two saves.
const (
	debounce  = 20 * time.Millisecond
	savePause = time.Second
)

// publish reports changes and saves specs, until ctx ends.
func (l *Chain) publish(ctx context.Context) {
	defer saveAtEnd(l.save)
	var retry statefile.Retry
	keep := time.NewTicker(savePause)
	defer keep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-keep.C:
			if !retry.Resting(time.Now()) {
				retry.Note(time.Now(), l.save())
			}
			continue
		case <-l.wake:
		}
		if !sleep.For(ctx, debounce) {
			return
		}
		l.notifyChanged()
	}
}

// notifyChanged reports the changed pods.
func (l *Chain) notifyChanged() {
	l.mu.Lock()
	changed := l.changed
	l.changed = map[string]bool{}
	l.mu.Unlock()
	if l.o.Changed != nil && len(changed) > 0 {
		l.o.Changed(slices.Sorted(maps.Keys(changed)))
	}
	if l.o.PendingChanged != nil {
		l.o.PendingChanged()
	}
}
