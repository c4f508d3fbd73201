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
	// quietTime is how long a directory must be quiet before the file is read: a
	// half-written file can be valid YAML with keys missing.
	quietTime = 100 * time.Millisecond
	// maxQuietWait bounds that wait in a directory that is never quiet.
	maxQuietWait = 2 * time.Second
	// recheck is how often the file is read without a notice of inotify: a watch
	// ends with its directory, and some network file systems send no notices.
	recheck = 10 * time.Second
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
	// Apply puts a configuration in force. If it fails, the previous configuration stays in force, and the new one is
	// not tried again until the file changes.
	Apply func(Config) error
	// Report is called with the reason why the newest content of the file is not in
	// force, once per reason, with all problems; and with nil when it is in force again.
	Report func(error)
	// Now makes the Follower read the file immediately when it has a value, such as after SIGHUP. It may be nil.
	Now <-chan os.Signal
}

// Run follows the file until ctx ends. It watches directories, not the file:
// ConfigMap volumes and careful editors replace it.
func (f Follower) Run(ctx context.Context) error {
	r := following{Follower: f}
	err := follow.DirWatcher{QuietTime: quietTime, MaxWait: maxQuietWait, Recheck: recheck, Dirs: r.dirs, Read: r.reload, Now: r.Now}.Run(ctx)
	if err != nil {
		return fmt.Errorf("follow %s: %w", f.File, err)
	}
	return nil
}

// following is one run of a Follower.
type following struct {
	Follower

	content      []byte // the last content of the file
	last         Config // the last valid configuration of the file
	policy       []byte // the last content of its placement.policyFile
	read         bool
	lastReported string // the reason last reported, "" for none
}

// reload reads the file, and applies its content if it is new.
func (r *following) reload() {
	data, err := Read(r.File)
	if err != nil {
		// If the same content returns, the code below must find it in force.
		r.read = false
		r.report(fmt.Errorf("%w; the configuration in force stays", err))
		return
	}
	policy := r.last.PolicyText()
	if r.read && bytes.Equal(data, r.content) && bytes.Equal(policy, r.policy) {
		return
	}
	r.read, r.content = true, data
	c, err := r.Parse(r.File, data)
	if err != nil {
		r.policy = policy
		r.report(fmt.Errorf("%w\nthe configuration in force stays", err))
		return
	}
	r.last, r.policy = c, c.PolicyText()
	if r.Override != nil {
		r.Override(&c)
		if err := refuse(Validate(c)); err != nil {
			r.report(fmt.Errorf("%s with the layers that have priority over it: %w", r.File, err))
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

// report reports a reason once, and later that it no longer exists.
func (r *following) report(err error) {
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

// dirs returns the directories to watch: the file's and, if the file is a symbolic link, its target's, and that of
// placement.policyFile.
func (r *following) dirs() []string {
	dirs := []string{filepath.Dir(r.File)}
	if real, err := filepath.EvalSymlinks(r.File); err == nil {
		dirs = append(dirs, filepath.Dir(real))
	}
	if file := r.last.Placement.PolicyFile; file != "" {
		dirs = append(dirs, filepath.Dir(file))
	}
	return dirs
}
