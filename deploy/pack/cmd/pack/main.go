// Command pack makes Trimtab's container image, Debian packages and releases from built programs. The Makefile calls
// pack.
//
//	pack image -out FILE [-name REPOSITORY] [-tag TAG] [-licence FILE] PROGRAM...
//	pack deb -nfpm NFPM -out DIRECTORY PROGRAM...
//	pack release -nfpm NFPM -out DIRECTORY [-name REPOSITORY] -plugins DIRECTORY PROGRAM...
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/trimtab/trimtab/deploy/pack/debian"
	"github.com/trimtab/trimtab/deploy/pack/image"
	"github.com/trimtab/trimtab/deploy/pack/program"
	"github.com/trimtab/trimtab/deploy/pack/release"
)

// commands has the subcommands by name.
var commands = map[string]func(args []string, out io.Writer) error{
	"image":   makeImage,
	"deb":     makePackages,
	"release": makeRelease,
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// run runs the subcommand that args[0] names.
func run(args []string, out io.Writer) error {
	if len(args) > 0 {
		if command, ok := commands[args[0]]; ok {
			return command(args[1:], out)
		}
	}
	return errors.New("the first argument must be image, deb or release")
}

// makeImage is the subcommand image: it makes a container image of the programs.
func makeImage(args []string, out io.Writer) error {
	set := flag.NewFlagSet("image", flag.ContinueOnError)
	to := set.String("out", "", "file to write, a tar of an OCI layout")
	name := set.String("name", "ghcr.io/trimtab/trimtab", "repository in the image's name")
	tag := set.String("tag", "", "tag of the image (default: the version of the programs)")
	licence := set.String("licence", "LICENSE", "file of the licence")
	if err := set.Parse(args); err != nil {
		return err
	}
	programs, err := program.ReadAll(set.Args())
	if err != nil {
		return err
	}
	return writeImage(target{*to, *name, *tag, *licence}, programs, out)
}

// target says how to write an image: the file to write, the repository in the image's name, the image's tag, and the
// file that has the licence.
type target struct{ file, name, tag, licence string }

// writeImage makes an image of the programs, writes it to to.file, and prints the image's name and digest.
func writeImage(to target, programs []program.Program, out io.Writer) error {
	text, err := os.ReadFile(to.licence)
	if err != nil {
		return err
	}
	index, err := image.New(programs, text)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if to.tag == "" {
		to.tag = programs[0].Tag()
	}
	err = writeAndRename(to.file, func(w io.Writer) error { return image.Archive(w, index, to.name, to.tag) })
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: image %s:%s, digest %s\n", to.file, to.name, to.tag, digest)
	return err
}

// makePackages is the subcommand deb: it makes a Debian package of each program.
func makePackages(args []string, out io.Writer) error {
	set := flag.NewFlagSet("deb", flag.ContinueOnError)
	nfpm := set.String("nfpm", "", "the program nfpm")
	dir := set.String("out", "dist", "directory to write to")
	if err := set.Parse(args); err != nil {
		return err
	}
	programs, err := program.ReadAll(set.Args())
	if err != nil {
		return err
	}
	return writePackages(*nfpm, *dir, programs, out)
}

// writePackages makes a Debian package of each program in the directory dir, and prints the packages' files.
func writePackages(nfpm, dir string, programs []program.Program, out io.Writer) error {
	for _, p := range programs {
		file, err := debian.Make(context.Background(), nfpm, ".", dir, p)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, file); err != nil {
			return err
		}
	}
	return nil
}

// makeRelease makes the image, the Debian packages and the archives of a release. It makes them in a new directory
// that is named after the version.
func makeRelease(args []string, out io.Writer) error {
	set := flag.NewFlagSet("release", flag.ContinueOnError)
	nfpm := set.String("nfpm", "", "the program nfpm")
	above := set.String("out", "dist", "parent of the release's directory")
	name := set.String("name", "ghcr.io/trimtab/trimtab", "repository in the image's name")
	plugins := set.String("plugins", "", "directory with the file OS-ARCH/kubectl-trimtab for each operating system and architecture")
	if err := set.Parse(args); err != nil {
		return err
	}
	programs, err := program.ReadAll(set.Args())
	if err != nil {
		return err
	}
	if err := release.Check(".", programs[0]); err != nil {
		return err
	}
	dir := filepath.Join(*above, programs[0].Version)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := writeImage(target{file: filepath.Join(dir, "trimtab-image.tar"), name: *name, licence: "LICENSE"}, programs, out); err != nil {
		return err
	}
	if err := writePackages(*nfpm, dir, programs, out); err != nil {
		return err
	}
	if err := release.Make(".", dir, *plugins, programs); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, filepath.Join(dir, release.SumsFile))
	return err
}

// writeAndRename writes a file under a temporary name and then renames it, so that no program reads a partial file.
func writeAndRename(to string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(to), ".pack")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), to)
}
