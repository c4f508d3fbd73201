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
	// quietTime is how long the directory must be without changes before the file is read. The wait makes it unlikely
	// that a half-written file is read: such a file can be valid YAML that lacks keys.
	quietTime = 100 * time.Millisecond
	// maxQuietWait limits the wait for a quiet directory. After this time the file is read, although the directory
	// still changes.
	maxQuietWait = 2 * time.Second
	// recheckInterval is how often the file is read without an inotify event. This is necessary because a watch ends
	// when its directory is removed, and because some network file systems send no events.
	recheckInterval = 10 * time.Second
)

// A Follower watches a configuration file, and applies every new valid content.
type Follower struct {
	// File is the path of the configuration file.
	File string
	// InForce is the configuration that was loaded from File before Run. Run does not apply it again. If InForce is
	// nil, Run applies the first valid content.
	InForce *Config
	// Override, if not nil, changes each configuration that was read from the file: it sets values that have priority
	// over the file, such as flags.
	Override func(*Config)
	// Parse makes a configuration from the file's content, and checks it. The parameter name is the name of the file
	// for messages. Parse is required.
	Parse func(name string, data []byte) (Config, error)
	// Apply puts a configuration in force. After an error of Apply, the previous configuration stays in force, and
	// the Follower does not apply the new one again until the file changes.
	Apply func(Config) error
	// Report is called once with each reason why the newest content of the file is not in force. The reason has all
	// problems of the content. Report is called with nil when the newest content is in force again.
	Report func(error)
	// ReadNow is a channel whose values make the Follower read the file at once, such as after SIGHUP. It may be nil.
	ReadNow <-chan os.Signal
}

// Run applies changes of the file until ctx ends. It watches the directories of the file and not the file itself,
// because ConfigMap volumes and many editors replace the file.
func (f Follower) Run(ctx context.Context) error {
	r := followerRun{Follower: f}
	err := follow.DirWatcher{QuietTime: quietTime, MaxWait: maxQuietWait, Recheck: recheckInterval, Dirs: r.dirs, Read: r.reload, Signals: r.ReadNow}.Run(ctx)
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
	lastPolicyText []byte // the last content of the file at lastConfig's placement.policyFile
	hasRead        bool   // the last read succeeded; false before the first read
	lastReported   string // the last reason given to Report; "" if the last one was nil
}

// reload reads the file, and applies its content if it is new.
func (r *followerRun) reload() {
	data, err := Read(r.File)
	if err != nil {
		// A file that appears again with the same content must be read again, so that this error is not reported
		// any more.
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

// report calls Report if the reason err differs from the reason that was reported last. If err is nil, the newest
// content is in force.
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

// dirs returns the directories to watch: the directory of the file, the directory of the link's target if the file is a
// symbolic link, and the directory of placement.policyFile.
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
