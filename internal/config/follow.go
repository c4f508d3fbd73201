package config

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/trimtab/trimtab/internal/follow"
)

const (
	// quietTime is how long a directory must be without changes before the file is read. A half-written file can be
	// valid YAML that lacks keys.
	quietTime = 100 * time.Millisecond
	// maxQuietWait is the longest wait for quietTime. Then the file is read although the directory still changes.
	maxQuietWait = 2 * time.Second
	// recheckInterval is how often the file is read without an inotify event. A watch ends when its directory is
	// removed, and some network file systems send no events.
	recheckInterval = 10 * time.Second
)

// A Follower watches a configuration file, and applies every new valid content.
type Follower struct {
	File string
	// InForce is the configuration that was loaded from File before Run. If it is nil,
	// the first valid content is applied.
	InForce *Config
	// Override, if not nil, sets values that have priority over the file, such as flags, in each configuration read
	// from it.
	Override func(*Config)
	// Parse parses the file's content, as the function Parse does. It is required.
	Parse func(name string, data []byte) (Config, error)
	// Apply puts a configuration in force. After an error of Apply, the previous configuration stays in force, and
	// the Follower does not apply the new one again until the file changes.
	Apply func(Config) error
	// Report is called with the reason why the newest content of the file is not in force, once per reason, with
	// all problems. It is called with nil when the newest content is in force again.
	Report func(error)
	// Now makes the Follower read the file at once when the channel has a value, such as after SIGHUP. It may be
	// nil.
	Now <-chan os.Signal
}

// Run applies changes of the file until ctx ends. It watches the directories of the file and not the file itself,
// because ConfigMap volumes and many editors replace the file.
func (f Follower) Run(ctx context.Context) error {
	r := followerRun{Follower: f}
	err := follow.DirWatcher{QuietTime: quietTime, MaxWait: maxQuietWait, Recheck: recheckInterval, Dirs: r.dirs, Read: r.reload, Now: r.Now}.Run(ctx)
	if err != nil {
		return fmt.Errorf("watch %s for changes: %w", f.File, err)
	}
	return nil
}

// followerRun is one run of a Follower.
type followerRun struct {
	Follower

	lastContent    []byte // the last content of the file
	lastConfig     Config // the last valid configuration of the file
	lastPolicyText []byte // the last content of its placement.policyFile
	hasRead        bool   // false before the first read, and after an error
	lastReported   string // the reason last reported, "" for none
}

// reload reads the file, and applies its content if it is new.
func (r *followerRun) reload() {
	data, err := Read(r.File)
	if err != nil {
		// Without this, a file that returns with the same content would be skipped, and the error would stay
		// reported.
		r.hasRead = false
		r.report(fmt.Errorf("%w; the configuration in force stays", err))
		return
	}
	policy := r.lastConfig.PolicyText()
	if r.hasRead && bytes.Equal(data, r.lastContent) && bytes.Equal(policy, r.lastPolicyText) {
		return
	}
	r.hasRead, r.lastContent = true, data
	c, err := r.Parse(r.File, data)
	if err != nil {
		r.lastPolicyText = policy
		r.report(fmt.Errorf("%w\nthe configuration in force stays", err))
		return
	}
	r.lastConfig, r.lastPolicyText = c, c.PolicyText()
	if r.Override != nil {
		r.Override(&c)
		if err := errorOf(Validate(c)); err != nil {
			r.report(fmt.Errorf("%s is not valid together with the settings that have priority over it: %w", r.File, err))
			return
		}
	}
	if r.InForce == nil || !reflect.DeepEqual(c, *r.InForce) {
		if err := r.Apply(c); err != nil {
			r.report(fmt.Errorf("apply %s: %w", r.File, err))
			return
		}
		r.InForce = &c
	}
	r.report(nil)
}

// report calls Report if the reason differs from the one that was reported last. A nil error means no reason.
func (r *followerRun) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == r.lastReported {
		return
	}
	r.lastReported = text
	r.Report(err)
}

// dirs returns the directories to watch: that of the file, that of its target if the file is a symbolic link, and that
// of placement.policyFile.
func (r *followerRun) dirs() []string {
	dirs := []string{filepath.Dir(r.File)}
	if real, err := filepath.EvalSymlinks(r.File); err == nil {
		dirs = append(dirs, filepath.Dir(real))
	}
	if file := r.lastConfig.Placement.PolicyFile; file != "" {
		dirs = append(dirs, filepath.Dir(file))
	}
	return dirs
}
