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

// Errors of SpecSource.Get for a source that has not failed, but has no spec of the pod.
var (
	ErrNoSuchPod      = errors.New("the source does not know the pod")
	ErrNotReportedYet = errors.New("the source has not reported this pod in time; the agent waits for the next answer of the source")
)

// SpecSource is one source of pod specs.
type SpecSource interface {
	// Source returns the name of the source.
	Source() lifecycle.Source
	// Get reads one pod now. The answer may also have other pods. The errors ErrNoSuchPod and ErrNotReportedYet do not
	// mean that the source has failed.
	Get(ctx context.Context, uid string) (Update, error)
	// PollSoon makes Watch poll as soon as the source's shortest pause between two requests has passed. It has no effect
	// on a source that does not poll.
	PollSoon()
	// Watch reports all pods, and then each change, until the source fails or ctx ends.
	Watch(ctx context.Context, report func(Update)) error
	// Close ends the connections of the source.
	Close() error
}

// DelayedSource is a source that the chain does not use before AwaitStart has returned. During this time, a source with
// a higher priority may answer. As long as that source answers, the chain does not use the DelayedSource.
type DelayedSource interface {
	// AwaitStart blocks until the chain may use the source, or ctx ends.
	AwaitStart(ctx context.Context)
}

// Update is an answer of a source, or a change that the source reports.
type Update struct {
	// All has the specs of pods by UID. If Full is set, these are all pods of the node.
	All      map[string]*lifecycle.PodSpec
	Full     bool
	EndedUID string // UID of a pod that ended
	// Pending says which pods of All have not started, by UID. A nil value means that the pod has started. If a pod is
	// not in Pending and Full is set, the pod has started. If it is not in Pending and Full is not set, it is unknown
	// whether the pod has started.
	Pending map[string]*PendingPod
	// Unread are the pods of the answer that cannot be read. Their earlier specs stay in use.
	Unread []UnreadPod
}

// State is the state of one source.
type State struct {
	Source lifecycle.Source
	Up     bool  // the source answered the last request
	Pods   int   // number of pods that the source has reported
	Err    error // why the source is not up, or an error in its last answer
	// NoCPUs is why the PodResources API does not report the CPUs that the kubelet has assigned. It is nil if the API
	// reports these CPUs, and for the sources of specs.
	NoCPUs error
}

// Options configure a chain.
type Options struct {
	// Sources are the sources, the source with the highest priority first. The chain closes them.
	Sources []SpecSource
	// Wait is the longest time for which a runtime's request waits for a spec.
	Wait time.Duration
	// Changed is called with the UIDs of pods whose spec is new or has changed. No request of the runtime waits for
	// Changed.
	Changed func(podUIDs []string)
	// PendingChanged is called when the set of pods that have not started may have changed. If it is nil, the chain does
	// not store these pods.
	PendingChanged func()
	// Saved is what an earlier agent last passed to Save. Save stores specs for the next agent. If Save is nil, the
	// chain saves nothing.
	Saved []byte
	Save  func([]byte) error
	Log   *slog.Logger
	// Retry is the first pause after a source has failed. The pause doubles with each failure. 0 means 1 s.
	Retry time.Duration
}

// Chain has the specs of pods. It reads them from one of several sources: of those that answer, the source with the
// highest priority.
type Chain struct {
	o     Options
	wake  chan struct{} // wakes publish
	ready chan struct{} // closed when a source is up, or all sources have failed

	mu          sync.Mutex                    // guards the fields below; never held across I/O
	sources     []*sourceState                // by priority; mu guards the fields of the elements, except SpecSource
	savedSpecs  map[string]*lifecycle.PodSpec // by pod UID: specs that an earlier agent saved
	changedUIDs map[string]bool               // the pods of the next call of Options.Changed
	pending     map[string]*PendingPod        // by UID: the pods that have not started
	dirty       bool                          // the specs differ from those that were saved last
	slowUntil   time.Time                     // until then, Await does not wait for sources
	readyClosed bool                          // the channel ready is closed
	endedPods   uidRing                       // the pods that ended last
}

// sourceState is one source and its answers.
type sourceState struct {
	SpecSource
	up        bool                          // the source answered the last request
	askedOnce bool                          // the source has answered or failed at least once
	err       error                         // why the source is not up, or which pods of its answers cannot be read
	pods      map[string]*lifecycle.PodSpec // by UID: the specs in the answers of the source
	// unread are the pods of the source's answers that cannot be read.
	unread []UnreadPod
}

// New returns a chain. The chain uses no source before Run is called.
func New(o Options) *Chain {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	l := &Chain{o: o, wake: make(chan struct{}, 1), ready: make(chan struct{}), changedUIDs: map[string]bool{}, pending: map[string]*PendingPod{}}
	for _, r := range o.Sources {
		l.sources = append(l.sources, &sourceState{SpecSource: r, pods: map[string]*lifecycle.PodSpec{}, err: errors.New("the agent has sent no request to this source yet")})
	}
	l.openReadyLocked()
	var err error
	if l.savedSpecs, err = loadSpecs(o.Saved); err != nil {
		o.Log.Warn("the agent ignores saved pod specs that it cannot read", logkey.Err, err)
	}
	return l
}

// Spec returns the known spec of a pod, or nil if there is none. It does not wait.
func (l *Chain) Spec(uid string) *lifecycle.PodSpec {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.specLocked(uid)
}

// specLocked returns the spec of the source with the highest priority that has the pod, or else the saved spec.
func (l *Chain) specLocked(uid string) *lifecycle.PodSpec {
	for _, r := range l.sources {
		if s := r.pods[uid]; s != nil {
			return s
		}
	}
	return l.savedSpecs[uid]
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

// maxFirstWait is the longest time for which a starting agent waits for the first answer of a source.
const maxFirstWait = 2 * time.Second

// AwaitFirst returns when a source has listed the node's pods, or all sources have failed, or maxFirstWait has passed.
// The agent then decides about running containers with the specs that it knows by then.
func (l *Chain) AwaitFirst(ctx context.Context) { awaitFirst(ctx, l.ready) }

// awaitFirst waits until ready is closed, at most for maxFirstWait.
func awaitFirst(ctx context.Context, ready <-chan struct{}) {
	limited, cancel := context.WithTimeout(ctx, maxFirstWait)
	defer cancel()
	select {
	case <-limited.Done():
	case <-ready:
	}
}

// openReadyLocked closes ready if a source is up, or all sources have failed.
func (l *Chain) openReadyLocked() {
	open := !slices.ContainsFunc(l.sources, func(r *sourceState) bool { return !r.askedOnce }) ||
		slices.ContainsFunc(l.sources, func(r *sourceState) bool { return r.up })
	if open && !l.readyClosed {
		l.readyClosed = true
		close(l.ready)
	}
}

// slowPause is a time after a source has not answered in time. During this time, Await does not wait for any source.
const slowPause = 5 * time.Second

// startedSource is a source that can tell whether its server runs. Such a source may answer even if its last request
// failed.
type startedSource interface {
	Started() bool // reports whether the server has started
}

// Await requests the spec of a pod, if the spec is unknown. It requests the spec from the sources that are up, and
// waits at most for Options.Wait. It returns at once if no source is up, or if a source did not answer in time less
// than slowPause ago. A source whose server has started (startedSource) counts as up, even if the last request failed:
// a kubelet creates its first pods as soon as it has started.
func (l *Chain) Await(ctx context.Context, pod *lifecycle.Pod) {
	l.mu.Lock()
	known := l.specLocked(pod.UID) != nil
	late := time.Now().Before(l.slowUntil)
	l.mu.Unlock()
	if known {
		return
	}
	up := l.answeringSources()
	if late {
		for _, r := range up {
			r.PollSoon()
		}
	}
	if late || len(up) == 0 || l.o.Wait <= 0 || pod.UID == "" {
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
			if ctx.Err() == nil { // Options.Wait ended the wait, not the deadline of the event
				l.mu.Lock()
				l.slowUntil = time.Now().Add(slowPause)
				l.mu.Unlock()
			}
			r.PollSoon()
			l.o.Log.Debug("a source did not answer in time with a pod's spec", logkey.Source, string(r.Source()), logkey.Pod, pod.Name, logkey.Err, err)
			return
		default:
			l.o.Log.Debug("a source has no spec of a pod", logkey.Source, string(r.Source()), logkey.Pod, pod.Name, logkey.Err, err)
		}
	}
}

// answeringSources returns the sources that are up, and the sources whose server has started.
func (l *Chain) answeringSources() []*sourceState {
	l.mu.Lock()
	up := make([]bool, len(l.sources))
	for i, r := range l.sources {
		up[i] = r.up
	}
	l.mu.Unlock()
	var out []*sourceState
	for i, r := range l.sources {
		if started, is := r.SpecSource.(startedSource); up[i] || is && started.Started() {
			out = append(out, r)
		}
	}
	return out
}

// Run watches the sources until ctx ends. It then closes the sources.
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

// watchSource watches the source with index i, as long as no source with a higher priority is up.
func (l *Chain) watchSource(ctx context.Context, i int, r *sourceState) {
	if b, ok := r.SpecSource.(DelayedSource); ok {
		b.AwaitStart(ctx)
	}
	pause := l.o.Retry
	for ctx.Err() == nil {
		if l.higherPriorityUp(i) {
			l.noteNotNeeded(r)
			pause = l.o.Retry
		} else {
			watching, stop := context.WithCancel(ctx)
			err := r.Watch(watching, func(u Update) {
				pause = l.o.Retry
				l.apply(r, u)
				if l.higherPriorityUp(i) {
					stop()
					l.noteNotNeeded(r)
				}
			})
			if watching.Err() == nil {
				l.sourceFailed(ctx, r, err)
			}
			stop()
		}
		sleep.For(ctx, pause+rand.N(pause/4+1)) //nolint:gosec // only spreads load
		pause = min(2*pause, maxRetry)
	}
}

// higherPriorityUp reports whether a source with a higher priority than the source with index i is up.
func (l *Chain) higherPriorityUp(i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.sources[:i], func(r *sourceState) bool { return r.up })
}

// noteNotNeeded notes that a source is not used, because a source with a higher priority answers.
func (l *Chain) noteNotNeeded(r *sourceState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.up, r.err = false, errNotNeeded
}

var errNotNeeded = errors.New("the agent does not use this source, because a source with a higher priority answers")

// sourceFailed notes that a source has failed, and logs the error if it differs from the last error. The specs of the
// source stay in use.
func (l *Chain) sourceFailed(ctx context.Context, r *sourceState, err error) {
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	news := r.up || r.err == nil || err == nil || r.err.Error() != err.Error()
	if err == nil {
		err = errors.New("the source ended without an error")
	}
	r.up, r.askedOnce, r.err = false, true, err
	l.openReadyLocked()
	l.mu.Unlock()
	if news {
		l.o.Log.Info("a source of pod specs does not answer; its specs stay in use", logkey.Source, string(r.Source()), logkey.Err, err)
	}
}

// apply stores an answer of a source.
func (l *Chain) apply(r *sourceState, u Update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news, unread := r.noteUnread(u)
	if news {
		l.o.Log.Warn("the agent cannot read the specs of some pods; the specs that it read before stay in use", logkey.Source, string(r.Source()), logkey.Err, unread)
	}
	if u.EndedUID != "" {
		l.forgetLocked(u.EndedUID)
		l.endedPods.add(u.EndedUID)
	}
	for uid, s := range u.All {
		if !u.Full && l.endedPods.has(uid) {
			continue // the answer may be older than the pod's end, and no later answer would remove the pod again
		}
		before := l.specLocked(uid)
		if have := r.pods[uid]; have == nil || !reflect.DeepEqual(*have, *s) {
			r.pods[uid] = s
		}
		if l.specLocked(uid) != before {
			l.changedUIDs[uid] = true
			l.dirty = true
		}
	}
	l.notePendingLocked(&u)
	if u.Full {
		if !r.up {
			l.o.Log.Info("a source of pod specs answers", logkey.Source, string(r.Source()), logkey.Pods, len(u.All))
		}
		r.up, r.askedOnce, r.err = true, true, unread
		l.openReadyLocked()
		l.pruneLocked(u.All, u.Unread)
	}
	if len(l.changedUIDs) > 0 {
		sleep.Wake(l.wake)
	}
}

// noteUnread stores which pods of an answer cannot be read. unread is one error about all unreadable pods of the
// source. news reports whether this error has changed, so that it must be logged.
func (r *sourceState) noteUnread(u Update) (news bool, unread error) {
	before := unreadError(r.unread)
	if u.Full {
		r.unread = nil
	}
	r.unread = slices.DeleteFunc(r.unread, func(x UnreadPod) bool { return u.All[x.UID] != nil || u.EndedUID != "" && x.UID == u.EndedUID })
	for _, x := range u.Unread {
		r.unread = append(slices.DeleteFunc(r.unread, func(y UnreadPod) bool { return y.UID == x.UID }), x)
	}
	unread = unreadError(r.unread)
	if r.up {
		r.err = unread
	}
	return unread != nil && (before == nil || before.Error() != unread.Error()), unread
}

// forgetLocked forgets a pod that has ended.
func (l *Chain) forgetLocked(uid string) {
	for _, r := range l.sources {
		delete(r.pods, uid)
	}
	delete(l.savedSpecs, uid)
	delete(l.pending, uid)
	delete(l.changedUIDs, uid)
	l.dirty = true
}

// pruneLocked forgets the pods that a complete list lacks. It forgets them for all sources, because every source
// reports the pods of the same kubelet. It does not forget pods of the list that could not be read. If one of these has
// no UID, it forgets no pod, because the unreadable pod may be any pod.
func (l *Chain) pruneLocked(all map[string]*lifecycle.PodSpec, unread []UnreadPod) {
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
	note(l.savedSpecs)
	for uid := range gone {
		l.forgetLocked(uid)
	}
}

// debounce is how long the chain collects changes before it reports them. savePause is the shortest pause between two
// saves.
const (
	debounce  = 20 * time.Millisecond
	savePause = time.Second
)

// publish reports changes and saves specs, until ctx ends. It then saves a last time.
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
			if !retry.TooEarly(time.Now()) {
				retry.SetResult(time.Now(), l.save())
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

// notifyChanged calls Changed and PendingChanged.
func (l *Chain) notifyChanged() {
	l.mu.Lock()
	changed := l.changedUIDs
	l.changedUIDs = map[string]bool{}
	l.mu.Unlock()
	if l.o.Changed != nil && len(changed) > 0 {
		l.o.Changed(slices.Sorted(maps.Keys(changed)))
	}
	if l.o.PendingChanged != nil {
		l.o.PendingChanged()
	}
}
