package vm

import (
	"context"
	"os"
	"path/filepath"
	"sync"
)

// payloadSize is the size in bytes of the disk with the programs. It is fixed, because a snapshot depends on the size
// of each disk.
const payloadSize = 256 << 20

// payload returns the path of a disk image with the programs of this checkout. It makes the image once per process. A
// snapshot does not depend on the programs. So a test after a change of the code takes some seconds more, and no guest
// needs to boot.
var payload = sync.OnceValues(func() (string, error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "ttpayload")
	if err != nil {
		return "", err
	}
	atEnd(func() { os.RemoveAll(dir) })
	programsDir := filepath.Join(dir, "payload")
	if err := os.Mkdir(programsDir, 0o755); err != nil {
		return "", err
	}
	printProgress("building the programs of this checkout")
	if err := goBuild(ctx, programsDir, ".", "./cmd/trimtab"); err != nil {
		return "", err
	}
	image := filepath.Join(dir, "payload.ext4")
	return image, makeExt4(ctx, programsDir, image, "256M")
})

// payloadDir is the mount point in a guest of the disk with the programs.
const payloadDir = "/payload"
