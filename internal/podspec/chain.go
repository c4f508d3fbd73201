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

// What a source answers where it has no spec for a reason that is no fault.
var (
	ErrUnknown = errors.New("no such pod")
	ErrLater   = errors.New("asked just now; it is asked again soon")
)

// SpecSource is one source of pod specs.
type SpecSource interface {
	Source() lifecycle.Source
	// Get asks for one pod now; the answer may have more. ErrUnknown and ErrLater are
	// no faults.
	Get(ctx context.Context, uid string) (Update, error)
	// Soon has Follow ask again at its next chance, where it asks at all.
	Soon()
	// Follow reports all pods and changes until it fails or ctx ends.
	Follow(ctx context.Context, tell func(Update)) error
	Close() error
}

// Beginner is a source that is not asked before Begin returns. If a better one is up by
// then, it need not be asked at all.
type Beginner interface {
	Begin(ctx context.Context)
}

// Update is what a source tells.
type Update struct {
	// All are pods by UID: every one of the node where Full is set.
	All  map[string]*lifecycle.PodSpec
	Full bool
	Gone string // UID of a pod that ended
	// Unread are pods in the answer that cannot be read. What was known of them
	// stays.
	Unread []Unread
}

// State is what can be said of one source.
type State struct {
	Source lifecycle.Source
	Up     bool
	Pods   int
	Err    error // why it is not up, or what was wrong in its last answer
	// NoCPUs is why the PodResources API does not report which CPUs the kubelet gave
	// away; nil where it does, and of all other sources.
	NoCPUs error
}

// Options are what a chain is made of.
type Options struct {
	// Sources are the sources, most trusted first. The chain closes them.
	Sources []SpecSource
	// Wait is the longest a runtime is made to wait for a spec.
	Wait time.Duration
	// Changed is called with the UIDs of pods whose spec became known or changed,
	// not on the path of any request.
	Changed func(podUIDs []string)
	// Remembered are the bytes that an earlier agent gave to Save last. Save stores
	// what is known; it is nil where nothing is stored.
	Remembered []byte
	Save       func([]byte) error
	Log        *slog.Logger
	// Retry is the first pause after a source failed, 1 s where 0.
	Retry time.Duration
}

// Chain knows pods' specs by its sources.
type Chain struct {
	o     Options
	woken chan struct{}
	ready chan struct{} // closed once a source is up, or none is after each was asked

	mu         sync.Mutex // guards all below; never held across I/O
	sources    []*sourceState
	remembered map[string]*lifecycle.PodSpec
	changed    map[string]bool
	dirty      bool
	slowUntil  time.Time
	readyOnce  bool
	gone       ring
}

// sourceState is one source and what it reported.
type sourceState struct {
	SpecSource
	up    bool
	asked bool
	err   error
	pods  map[string]*lifecycle.PodSpec
	// unread are pods in its answers that cannot be read.
	unread []Unread
}

// New makes a chain. Nothing is asked before Run.
func New(o Options) *Chain {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	l := &Chain{o: o, woken: make(chan struct{}, 1), ready: make(chan struct{}), changed: map[string]bool{}}
	for _, r := range o.Sources {
		l.sources = append(l.sources, &sourceState{SpecSource: r, pods: map[string]*lifecycle.PodSpec{}, err: errors.New("not asked yet")})
	}
	l.settleLocked()
	var err error
	if l.remembered, err = recall(o.Remembered); err != nil {
		o.Log.Warn("remembered pod specs are ignored", logkey.Err, err)
	}
	return l
}

// Spec returns what is known of a pod at once, nil for nothing.
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

// States reports every source.
func (l *Chain) States() []State {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []State
	for _, r := range l.sources {
		out = append(out, State{Source: r.Source(), Up: r.up, Pods: len(r.pods), Err: r.err})
	}
	return out
}

// patience is the longest an agent waits for the first answer at its start.
const patience = 2 * time.Second

// Ready returns when a source has listed the node's pods, or none can now: running
// containers are taken over with what is known by then. It waits for patience at most.
func (l *Chain) Ready(ctx context.Context) { awaitFirst(ctx, l.ready) }

// awaitFirst waits for the first answer, for a short time at most.
func awaitFirst(ctx context.Context, ready <-chan struct{}) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-limited.Done():
	case <-ready:
	}
}

// settleLocked opens Ready where nothing more is to be waited for.
func (l *Chain) settleLocked() {
	open := !slices.ContainsFunc(l.sources, func(r *sourceState) bool { return !r.asked }) ||
		slices.ContainsFunc(l.sources, func(r *sourceState) bool { return r.up })
	if open && !l.readyOnce {
		l.readyOnce = true
		close(l.ready)
	}
}

// slow is how long Await returns at once after a caller waited without success.
const slow = 5 * time.Second

// Await asks the sources that are up for a pod without a known spec, for at most as
// long as the options say. Where no source is up, or one was slow just now, it
// returns at once.
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
			l.take(r, u)
		}
		switch {
		case err == nil:
			return
		case limited.Err() != nil:
			if ctx.Err() == nil { // else its time was cut by its event's
				l.mu.Lock()
				l.slowUntil = time.Now().Add(slow)
				l.mu.Unlock()
			}
			r.Soon()
			l.o.Log.Debug("a pod spec did not come in time", logkey.Source, string(r.Source()), logkey.Pod, pod.Name, logkey.Err, err)
			return
		default:
			l.o.Log.Debug("no pod spec", logkey.Source, string(r.Source()), logkey.Pod, pod.Name, logkey.Err, err)
		}
	}
}

// Run follows the sources until ctx ends, and closes them.
func (l *Chain) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, r := range l.sources {
		group.Go(func() error {
			l.follow(ctx, i, r)
			return r.Close()
		})
	}
	group.Go(func() error {
		l.spread(ctx)
		return nil
	})
	return group.Wait()
}

// maxRetry is the longest pause after a source failed.
const maxRetry = 30 * time.Second

// follow keeps one source going while no better one is up.
func (l *Chain) follow(ctx context.Context, i int, r *sourceState) {
	if b, ok := r.SpecSource.(Beginner); ok {
		b.Begin(ctx)
	}
	pause := l.o.Retry
	for ctx.Err() == nil {
		if l.betterUp(i) {
			l.rest(r)
			pause = l.o.Retry
		} else {
			following, stop := context.WithCancel(ctx)
			err := r.Follow(following, func(u Update) {
				pause = l.o.Retry
				l.take(r, u)
				if l.betterUp(i) {
					stop()
					l.rest(r)
				}
			})
			if following.Err() == nil {
				l.down(ctx, r, err)
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

// rest notes that a source is not asked, because a better one answers.
func (l *Chain) rest(r *sourceState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.up, r.err = false, errNotNeeded
}

var errNotNeeded = errors.New("not asked: a better source answers")

// down notes that a source failed. Specs that it gave stay known. It is logged once.
func (l *Chain) down(ctx context.Context, r *sourceState, err error) {
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	news := r.up || r.err == nil || err == nil || r.err.Error() != err.Error()
	if err == nil {
		err = errors.New("it ended")
	}
	r.up, r.asked, r.err = false, true, err
	l.settleLocked()
	l.mu.Unlock()
	if news {
		l.o.Log.Info("a source of pod specs does not answer; the specs that it gave stay known", logkey.Source, string(r.Source()), logkey.Err, err)
	}
}

// take takes in what a source tells.
func (l *Chain) take(r *sourceState, u Update) {
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
			continue // an answer from before its end, which no list would take back
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
	if u.Full {
		if !r.up {
			l.o.Log.Info("a source of pod specs answers", logkey.Source, string(r.Source()), logkey.Pods, len(u.All))
		}
		r.up, r.asked, r.err = true, true, unread
		l.settleLocked()
		l.pruneLocked(u.All, u.Unread)
	}
	if len(l.changed) > 0 {
		wake(l.woken)
	}
}

// wake wakes who waits, or will.
func wake(woken chan<- struct{}) {
	select {
	case woken <- struct{}{}:
	default:
	}
}

// note takes in which pods cannot be read, and returns that as an error. It reports
// whether that is to be said: once, not at every answer.
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
	delete(l.changed, uid)
	l.dirty = true
}

// pruneLocked forgets pods that a whole list does not have: every source reports
// the same kubelet's. Pods that could not be read are not gone, and one without a UID
// may be any.
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

// gather is how long changes are gathered before they are told, keepEvery the
// least time between two writes of what is known.
const (
	gather    = 20 * time.Millisecond
	keepEvery = time.Second
)

// spread reports changes and keeps what is known, until ctx ends.
func (l *Chain) spread(ctx context.Context) {
	defer saveLast(l.save)
	var retry statefile.Retry
	keep := time.NewTicker(keepEvery)
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
		case <-l.woken:
		}
		if !sleep.For(ctx, gather) {
			return
		}
		l.tell()
	}
}

// tell hands over what changed.
func (l *Chain) tell() {
	l.mu.Lock()
	changed := l.changed
	l.changed = map[string]bool{}
	l.mu.Unlock()
	if l.o.Changed != nil && len(changed) > 0 {
		l.o.Changed(slices.Sorted(maps.Keys(changed)))
	}
}
