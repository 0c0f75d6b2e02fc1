# SPDX-License-Identifier: MIT OR LGPL-2.1
# shellcheck shell=bash
# bash completion for kvm-fastsys(8)
_kvm_fastsys() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local command=${COMP_WORDS[1]} words='' files=-W

	case "$command $prev" in
	"run --mode" | "run -m") words="fast exit" ;;
	"trace --pid" | "trace -p")
		words=$(cd /proc && compgen -G '[0-9]*')
		;;
	*" --file" | *" --module" | *" --policy" | *" --output" | *" -o" | \
		"demo -f" | "demo -m" | "run -p") files=-f ;;
	*)
		case "$command $COMP_CWORD" in
		*" 1")
			words="status check demo bench policy run trace"
			words+=" --help --version"
			;;
		status*) words="--json --watch --help" ;;
		check*) words="--json --help" ;;
		demo*) words="--file --module --keep-module --help" ;;
		bench*)
			words="vsock --peer --tcp --serve --reps --ms --columns"
			words+=" --dither --size --direction --json --svg --help"
			;;
		trace*) words="--pid --vm --strings --output --help" ;;
		"policy 2") words="compile show explain --help" ;;
		"policy 3") files=-f ;;
		policy*) words="--output --cap --kernel" ;;
		"run 2") words="--policy --mode --help"$'\n'$(compgen -c -- "$cur") ;;
		run*) files=-f ;;
		esac
		;;
	esac
	if [ "$files" = -f ]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	else
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
	fi
}
complete -F _kvm_fastsys kvm-fastsys
