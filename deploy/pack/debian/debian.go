// Package debian builds the Debian package of trimtab with the tool nfpm. The package has a built program, and files of
// deploy/deb, deploy/systemd and docs/man.
package debian

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/trimtab/trimtab/deploy/pack/program"
)

// Make builds the package of a program in the directory out, and returns the path of the package. root is the directory
// of the repository. The same program always gives the same bytes.
func Make(ctx context.Context, nfpm, root, out string, p program.Program) (string, error) {
	// nfpm runs in the directory root, so paths relative to the current directory must become absolute.
	for _, path := range []*string{&nfpm, &out, &p.Path} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return "", err
		}
		*path = absolute
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	stage, err := os.MkdirTemp("", "trimtab-deb")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(stage)
	if err := stageFiles(stage, root, p); err != nil {
		return "", err
	}
	file := filepath.Join(out, "trimtab_"+strings.TrimPrefix(p.Version, "v")+"_"+p.Arch+".deb")
	cmd := exec.CommandContext(ctx, nfpm, "package", "--config", "deploy/deb/nfpm.yaml", "--packager", "deb", "--target", file)
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), "ARCH="+p.Arch, "VERSION="+p.Version, "STAGE="+stage,
		fmt.Sprintf("SOURCE_DATE_EPOCH=%d", p.Time.Unix()))
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("make %s with nfpm: %w: %s", file, err, output.String())
	}
	return file, nil
}

// stageFiles copies the files of the package into the directory stage. Each copy gets the commit's time as its
// modification time, which nfpm writes into the package.
func stageFiles(stage, root string, p program.Program) error {
	wrapper, err := p.Wrapper()
	if err != nil {
		return err
	}
	for name, from := range map[string]string{"trimtab": p.Path, program.WrapperName: wrapper} {
		if err := stageFile(from, filepath.Join(stage, name), p.Time); err != nil {
			return err
		}
	}
	for _, from := range []string{"deploy/systemd/*", "docs/man/*.[15]", "deploy/deb/config.yaml", "LICENSE"} {
		found, err := filepath.Glob(filepath.Join(root, from))
		if err != nil {
			return err
		}
		for _, file := range found {
			to := filepath.Join(stage, filepath.Base(filepath.Dir(from)), filepath.Base(file))
			if err := stageFile(file, to, p.Time); err != nil {
				return err
			}
		}
	}
	return nil
}

// stageFile copies one file. In a systemd unit, it replaces the path of a manually installed program (/usr/local/bin)
// by the path of the program in the package (/usr/bin).
func stageFile(from, to string, at time.Time) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if filepath.Ext(from) == ".service" {
		data = bytes.ReplaceAll(data, []byte("/usr/local/bin/trimtab"), []byte("/usr/bin/trimtab"))
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		return err
	}
	return os.Chtimes(to, at, at)
}
