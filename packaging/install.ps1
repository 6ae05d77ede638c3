# Installs yggc on Windows from the archives of a release, as `.ci/release` makes them:
#
#   powershell -ExecutionPolicy Bypass -File install.ps1 [-Prefix FOLDER] [-Version VERSION] [-From PLACE] [-List] [-Uninstall]
#
# Takes the archive for this machine, checks its digest, puts it into FOLDER (default %LOCALAPPDATA%\Programs\yggc), and
# FOLDER onto the path of this user. PLACE is a folder or an address with archives and their SHA256SUMS (default: the
# newest release). -List tells which archives there are.
[CmdletBinding()]
param(
    [string]$Prefix = (Join-Path $env:LOCALAPPDATA 'Programs\yggc'),
    [string]$Version = '',
    [string]$From = $env:YGGC_RELEASES,
    [switch]$List,
    [switch]$Uninstall
)
$ErrorActionPreference = 'Stop'
# Its bar makes a download many times slower.
$ProgressPreference = 'SilentlyContinue'
$releases = 'https://github.com/yggdrasil-rt/yggc/releases'
$Version = $Version -replace '^v', ''
$manifest = Join-Path $Prefix 'yggc-installed.txt'

# The folders of this user's path, those of the registry's value as it is written there.
function Get-UserPath {
    $key = [Microsoft.Win32.Registry]::CurrentUser.OpenSubKey('Environment')
    if ($null -eq $key) { return @() }
    $text = [string]$key.GetValue('Path', '', [Microsoft.Win32.RegistryValueOptions]::DoNotExpandEnvironmentNames)
    return @($text.Split(';') | Where-Object { $_ -ne '' })
}

function Set-UserPath([string[]]$Folders) {
    $key = [Microsoft.Win32.Registry]::CurrentUser.CreateSubKey('Environment')
    $key.SetValue('Path', ($Folders -join ';'), [Microsoft.Win32.RegistryValueKind]::ExpandString)
    # Programs are told of a change only by this call; that it changes nothing else does not matter.
    [Environment]::SetEnvironmentVariable('YGGC_INSTALLED', $null, 'User')
}

if ($Uninstall) {
    if (-not (Test-Path $manifest)) { throw "nothing that this script installed is in $Prefix" }
    foreach ($file in Get-Content $manifest) { Remove-Item (Join-Path $Prefix $file) -ErrorAction SilentlyContinue }
    Remove-Item $manifest
    if (-not (Get-ChildItem $Prefix)) { Remove-Item $Prefix }
    Set-UserPath @(Get-UserPath | Where-Object { $_ -ne $Prefix })
    Write-Output "yggc is removed from $Prefix; caches stay in $env:LOCALAPPDATA\yggc"
    return
}

if (-not $From) {
    $From = if ($Version) { "$releases/download/v$Version" } else { "$releases/latest/download" }
}
$work = Join-Path ([IO.Path]::GetTempPath()) ([IO.Path]::GetRandomFileName())
New-Item -ItemType Directory $work | Out-Null

# Fetches a file of the release.
function Get-Released([string]$Name) {
    $to = Join-Path $work $Name
    if ($From -match '^https?://') {
        Invoke-WebRequest -UseBasicParsing "$From/$Name" -OutFile $to
    } else {
        Copy-Item (Join-Path $From $Name) $to
    }
    return $to
}

try {
    # Windows PowerShell 5.1 may begin with less.
    [Net.ServicePointManager]::SecurityProtocol = [Net.ServicePointManager]::SecurityProtocol -bor [Net.SecurityProtocolType]::Tls12
    $digests = [ordered]@{}
    foreach ($line in Get-Content (Get-Released 'SHA256SUMS')) {
        if ($line -match '^([0-9a-f]{64}) [ *](yggc-[^/]*-pc-windows-[^/]*\.zip)$') { $digests[$Matches[2]] = $Matches[1] }
    }
    $archives = @($digests.Keys)
    if ($Version) { $archives = @($archives | Where-Object { $_.StartsWith("yggc-$Version-") }) }
    if ($List) {
        Write-Output $archives
        return
    }
    # Windows on ARM runs programs of x86-64.
    $name = $archives | Where-Object { $_.EndsWith('-x86_64-pc-windows-gnu.zip') } |
        Sort-Object { [version]($_ -replace '^yggc-([0-9.]+).*$', '$1') } | Select-Object -Last 1
    if (-not $name) { throw "$From has no archive for Windows on x86-64; it has: $($archives -join ' ')" }

    $archive = Get-Released $name
    $found = (Get-FileHash -Algorithm SHA256 $archive).Hash.ToLowerInvariant()
    if ($found -ne $digests[$name]) {
        throw "$name is damaged: expected SHA-256 $($digests[$name]), found $found; nothing was installed"
    }
    Expand-Archive $archive $work
    $folder = Join-Path $work ($name -replace '\.zip$', '')
    $said = & (Join-Path $folder 'yggc.exe') --version
    if ($LASTEXITCODE -ne 0) { throw "the program in $name does not run here; nothing was installed" }

    New-Item -ItemType Directory -Force $Prefix | Out-Null
    # A program that runs cannot be replaced, but it can be renamed.
    $program = Join-Path $Prefix 'yggc.exe'
    if (Test-Path $program) { Move-Item -Force $program "$program.old" }
    $files = @(Get-ChildItem -File $folder)
    Copy-Item -Force $files.FullName $Prefix
    Set-Content $manifest $files.Name
    Remove-Item "$program.old" -ErrorAction SilentlyContinue
    $path = @(Get-UserPath)
    if ($path -notcontains $Prefix) {
        Set-UserPath ($path + $Prefix)
        Write-Output 'a new terminal finds it on the path'
    }
    Write-Output "$said is in $Prefix"
    Write-Output 'begin with: yggc run -p "Why is the sky blue?"'
} finally {
    Remove-Item -Recurse -Force $work
}
