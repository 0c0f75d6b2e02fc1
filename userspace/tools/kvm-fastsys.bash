# SPDX-License-Identifier: MIT OR LGPL-2.1
# shellcheck shell=bash
# bash completion for kvm-fastsys(8)
_kvm_fastsys() {
	local cur=${COMP_WORDS[COMP_CWORD]} words

	case ${COMP_WORDS[COMP_CWORD - 1]} in
	--file | --module | -f | -m)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	esac
	if [ "$COMP_CWORD" = 1 ]; then
		words="status check demo bench --help --version"
	else
		case ${COMP_WORDS[1]} in
		status | check) words="--json --help" ;;
		demo) words="--file --module --keep-module --help" ;;
		bench)
			words="vsock --peer --tcp --serve --reps --ms --columns"
			words+=" --direction --json --svg --help"
			;;
		*) words= ;;
		esac
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _kvm_fastsys kvm-fastsys
